// What a build generates from the shaders.
#pragma once
#include <Metal/Metal.h>
namespace embedded {
id<MTLLibrary> createLibrary(id<MTLDevice> device, NSError **error);
}
