#pragma once

#include <cstdint>
#include <string>

std::string match_words(const std::string &text);
void fail_with_number(int64_t number);
int64_t unwind_through_destructors();
std::string catch_torch_error();
std::string nested_exceptions();
int64_t throw_in_thread();
std::string format_numbers();
std::string walk_directory(const std::string &path);
bool random_numbers_differ();
int64_t wait_until_timeout();
