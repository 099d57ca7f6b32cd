#include "copy.h"

#include <cutlass/version.h>

static_assert(CUTLASS_VERSION == 360, "this section depends on cutlass_3_6");

int elder_release() { return CUTLASS_VERSION; }
