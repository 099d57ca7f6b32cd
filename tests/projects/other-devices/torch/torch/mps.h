// torch's functions for Metal that a kernel calls, with the types that they have in Objective-C++.
#pragma once
#include <Metal/Metal.h>
namespace torch::mps {
id<MTLCommandBuffer> get_command_buffer();
dispatch_queue_t get_dispatch_queue();
void commit();
} // namespace torch::mps
