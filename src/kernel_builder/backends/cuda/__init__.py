from kernel_builder.backends.cuda.compile import CudaCompiler

RULES = CudaCompiler()
RULES.toolkit = None
