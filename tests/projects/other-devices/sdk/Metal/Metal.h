// As much of Metal as a kernel uses, with the types that Apple documents.
#pragma once
#include <Foundation/Foundation.h>
struct MTLSize { NSUInteger width, height, depth; };
inline MTLSize MTLSizeMake(NSUInteger w, NSUInteger h, NSUInteger d) { return {w, h, d}; }
@protocol MTLBuffer
@end
@protocol MTLFunction
@end
@protocol MTLComputePipelineState
@property(readonly) NSUInteger maxTotalThreadsPerThreadgroup;
@end
@protocol MTLLibrary
- (id<MTLFunction>)newFunctionWithName:(NSString *)name;
@end
@protocol MTLComputeCommandEncoder
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setBytes:(void const *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)dispatchThreads:(MTLSize)threads threadsPerThreadgroup:(MTLSize)group;
- (void)endEncoding;
@end
@protocol MTLCommandBuffer
- (id<MTLComputeCommandEncoder>)computeCommandEncoder;
@end
@protocol MTLDevice
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function error:(NSError **)error;
@end
extern "C" id<MTLDevice> MTLCreateSystemDefaultDevice();
