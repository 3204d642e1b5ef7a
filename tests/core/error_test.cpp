#include "composer/core/error.h"

#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <c10/util/Exception.h>

#include "tests/support/doctest.h"
#include "tests/support/warnings.h"

namespace composer::error_test {
namespace {

// The error of `inner`, nested in a DataError and that in a RunError.
template <class F>
void nested(F&& inner) {
  try {
    try {
      inner();
    } catch (...) {
      throw_nested<DataError>("loader: sample ", 3, " is broken");
    }
  } catch (...) {
    throw_nested<RunError>("failed after before_dataloader");
  }
}

const char* const kChain =
    "failed after before_dataloader\n  because: loader: sample 3 is broken\n  because: a plain text";

TEST_CASE("what() of a nested error holds the whole chain, and describe() does not repeat it") {
  try {
    nested([] { throw std::out_of_range("a plain text"); });
    FAIL("it threw nothing");
  } catch (const std::exception& error) {
    CHECK(error.what() == std::string(kChain));
    CHECK(describe(error) == kChain);
  }
}

TEST_CASE("Each nested error can be thrown again as what it is") {
  int found = 0;
  try {
    nested([] { throw std::out_of_range("a plain text"); });
  } catch (const RunError& run) {
    try {
      std::rethrow_if_nested(run);
    } catch (const DataError& data) {
      try {
        std::rethrow_if_nested(data);
      } catch (const std::out_of_range&) {
        ++found;
      }
    }
  }
  CHECK(found == 1);
}

TEST_CASE("describe() adds the causes of errors that do not tell them") {
  try {
    try {
      throw std::out_of_range("a plain text");
    } catch (...) {
      std::throw_with_nested(std::runtime_error("outer"));
    }
  } catch (const std::exception& error) {
    CHECK(describe(error) == "outer\n  because: a plain text");
  }
}

TEST_CASE("An error of libtorch is told without its stack frames, also if only its text was kept") {
  const auto text_of = [](auto&& inner) -> std::string {
    try {
      nested(inner);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "nothing";
  };
  const std::string direct = text_of([] { TORCH_CHECK(false, "a plain text"); });
  CHECK(direct.substr(0, std::string(kChain).size()) == kChain);
  CHECK(direct.find("Exception raised from") == std::string::npos);
  const std::string copied = text_of([] {
    try {
      TORCH_CHECK(false, "a plain text");
    } catch (const c10::Error& error) {
      throw std::runtime_error(error.what());
    }
  });
  CHECK(copied == kChain);
}

TEST_CASE("A cause that is not a std::exception is said to be such") {
  CHECK_THROWS_WITH_AS(nested([] { throw 3; }), doctest::Contains("because: something that is not a std::exception"),
                       RunError);
}

TEST_CASE("A warning goes to libtorch's handler of this thread if there is one, else to ours, on every thread") {
  std::vector<std::string> ours;
  const WarningSink before = redirect_warnings([&ours](const std::string& text) { ours.push_back(text); });
  warn("first");
  std::thread([] { warn("second"); }).join();
  {
    const test::Warnings of_libtorch;
    warn("third");
    CHECK(of_libtorch.texts == std::vector<std::string>{"third"});
  }
  warn("fourth");
  redirect_warnings(before);
  CHECK(ours == std::vector<std::string>{"first", "second", "fourth"});
}

TEST_CASE("A sink of warnings that throws ends nothing: the warning goes to stderr") {
  const std::ostringstream captured;
  std::streambuf* const real = std::cerr.rdbuf(captured.rdbuf());
  const WarningSink before =
      redirect_warnings([](const std::string&) { throw std::runtime_error("no warnings here"); });
  CHECK_NOTHROW(warn("the subset is all of them"));
  redirect_warnings(before);
  std::cerr.rdbuf(real);
  CHECK(captured.str() == "libcomposer: the subset is all of them\n");
}

TEST_CASE("A warning is one line of stderr, without libtorch's marks") {
  const std::ostringstream captured;
  std::streambuf* const real = std::cerr.rdbuf(captured.rdbuf());
  warn("the subset is all of them");
  std::cerr.rdbuf(real);
  CHECK(captured.str() == "libcomposer: the subset is all of them\n");
}

}  // namespace
}  // namespace composer::error_test
