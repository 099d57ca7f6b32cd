#include <torch/library.h>

#include "../runtime/runtime.h"
#include "registration.h"

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("match_words(str text) -> str", &match_words);
  ops.def("fail_with_number(int number) -> ()", &fail_with_number);
  ops.def("unwind_through_destructors() -> int", &unwind_through_destructors);
  ops.def("catch_torch_error() -> str", &catch_torch_error);
  ops.def("nested_exceptions() -> str", &nested_exceptions);
  ops.def("throw_in_thread() -> int", &throw_in_thread);
  ops.def("format_numbers() -> str", &format_numbers);
  ops.def("walk_directory(str path) -> str", &walk_directory);
  ops.def("random_numbers_differ() -> bool", &random_numbers_differ);
  ops.def("wait_until_timeout() -> int", &wait_until_timeout);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
