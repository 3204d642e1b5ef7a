#define DOCTEST_CONFIG_NO_POSIX_SIGNALS  // its handlers would look like a program's own
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <cstdlib>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "tests/support/locale.h"
#include "tests/support/seed.h"

namespace {

// Begins each test with the same random numbers, whatever ran before it.
// Keeps what a test writes to std::cerr (mostly warnings that it provokes), and shows it if the test fails: between
// thousands of lines that mean nothing, nobody finds the failure.
struct EachByItself : doctest::IReporter {
  explicit EachByItself(const doctest::ContextOptions& /*options*/) {
    // Ranks are threads here. In libtorch 2.11 they share a record of their collectives, which no lock protects.
    ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*replace=*/0);
    if (const char* name = std::getenv("COMPOSER_TEST_LOCALE")) {
      if (std::string(name) == "1")
        locale_.emplace();
      else
        locale_.emplace(name);
    }
  }
  ~EachByItself() override { restore(); }
  EachByItself(const EachByItself&) = delete;
  EachByItself& operator=(const EachByItself&) = delete;

  void test_case_start(const doctest::TestCaseData& /*test*/) override {
    composer::test::seed_random_numbers();
    kept_.str("");
    if (!before_) before_ = std::cerr.rdbuf(kept_.rdbuf());
  }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    restore();
    if (stats.failure_flags != 0) std::cerr << kept_.str() << std::flush;
  }
  void test_run_end(const doctest::TestRunStats& /*stats*/) override { restore(); }

  void report_query(const doctest::QueryData& /*query*/) override {}
  void test_run_start() override {}
  void test_case_reenter(const doctest::TestCaseData& /*test*/) override { composer::test::seed_random_numbers(); }
  void test_case_exception(const doctest::TestCaseException& /*error*/) override {}
  void subcase_start(const doctest::SubcaseSignature& /*subcase*/) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData& /*check*/) override {}
  void log_message(const doctest::MessageData& /*message*/) override {}
  void test_case_skipped(const doctest::TestCaseData& /*test*/) override {}

 private:
  void restore() {
    if (before_) std::cerr.rdbuf(before_);
    before_ = nullptr;
  }

  std::optional<composer::test::OtherLocale> locale_;  // with COMPOSER_TEST_LOCALE=1, or the name of one, for all tests
  std::ostringstream kept_;
  std::streambuf* before_ = nullptr;
};

}  // namespace

REGISTER_LISTENER("each_by_itself", 1, EachByItself);
