#include "runtime.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <iomanip>
#include <mutex>
#include <random>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

std::string match_words(const std::string &text) {
  static const std::regex word("([a-z]+)-([0-9]+)");
  std::string found;
  for (std::sregex_iterator it(text.begin(), text.end(), word), end; it != end; ++it) {
    found += (*it)[1].str() + ":" + std::to_string(std::stoi((*it)[2].str()) + 1) + ";";
  }
  return found;
}

void fail_with_number(int64_t number) { TORCH_CHECK(number < 0, "expected a negative number, got ", number, " and ", 2.5); }

namespace {

struct Counter {
  explicit Counter(int64_t &value) : value(value) {}
  ~Counter() { ++value; }
  int64_t &value;
};

void descend(int depth, int64_t &destroyed) {
  Counter counter(destroyed);
  if (depth == 0) {
    throw std::out_of_range("the bottom");
  }
  descend(depth - 1, destroyed);
}

}  // namespace

int64_t unwind_through_destructors() {
  int64_t destroyed = 0;
  try {
    descend(9, destroyed);
  } catch (const std::exception &) {
    return destroyed;
  }
  return -1;
}

std::string catch_torch_error() {
  try {
    fail_with_number(41);
  } catch (const c10::Error &error) {
    return error.what_without_backtrace();
  }
  return "not caught";
}

std::string nested_exceptions() {
  try {
    try {
      throw std::invalid_argument("inner");
    } catch (...) {
      std::throw_with_nested(std::runtime_error("outer"));
    }
  } catch (const std::exception &outer) {
    try {
      std::rethrow_if_nested(outer);
    } catch (const std::invalid_argument &inner) {
      return std::string(outer.what()) + "/" + inner.what();
    }
  }
  return "lost";
}

int64_t throw_in_thread() {
  std::exception_ptr caught;
  std::thread worker([&caught] {
    try {
      throw std::length_error("in a thread");
    } catch (...) {
      caught = std::current_exception();
    }
  });
  worker.join();
  try {
    std::rethrow_exception(caught);
  } catch (const std::length_error &error) {
    return static_cast<int64_t>(std::string(error.what()).size());
  }
  return -1;
}

std::string format_numbers() {
  std::ostringstream out;
  out << std::setprecision(3) << 3.14159 << " " << 42 << " " << std::hex << 255 << " " << std::boolalpha << true;
  std::istringstream in("7 2.5 word");
  int whole = 0;
  double real = 0;
  std::string word;
  in >> whole >> real >> word;
  out << " " << std::dec << whole + 1 << " " << real * 2 << " " << word;
  return out.str();
}

std::string walk_directory(const std::string &path) {
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(path)) {
    names.push_back(entry.path().filename().string() + (entry.is_directory() ? "/" : ""));
  }
  std::sort(names.begin(), names.end());
  std::string joined;
  for (const auto &name : names) {
    joined += name + ";";
  }
  return joined;
}

bool random_numbers_differ() {
  std::random_device device;
  const auto first = device();
  for (int attempt = 0; attempt < 8; ++attempt) {
    if (device() != first) {
      return true;
    }
  }
  return false;
}

int64_t wait_until_timeout() {
  std::mutex mutex;
  std::condition_variable condition;
  std::unique_lock<std::mutex> lock(mutex);
  const auto start = std::chrono::steady_clock::now();
  condition.wait_for(lock, std::chrono::milliseconds(30), [] { return false; });
  const auto waited = std::chrono::steady_clock::now() - start;
  return std::chrono::duration_cast<std::chrono::milliseconds>(waited).count();
}
