#pragma once

#include <cuda_runtime_api.h>

// Copies a rows x cols matrix, row by row in memory, through tiles.
cudaError_t copy_tiles(float const *in, float *out, int rows, int cols, cudaStream_t stream);

// The release of CUTLASS that elder.cu was compiled with: 360.
int elder_release();
