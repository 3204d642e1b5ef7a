#include "composer/util/environment.h"

#include <cstdlib>
#include <optional>
#include <string>

#include "tests/support/doctest.h"

namespace composer::util::environment_test {
namespace {

TEST_CASE("A variable that is empty is told from one that is not set, where that matters") {
  const char* const name = "COMPOSER_TEST_OF_ENVIRONMENT";
  CHECK_FALSE(environment_if_set(name));
  CHECK(environment(name).empty());
  ::setenv(name, "", 1);
  CHECK(environment_if_set(name) == "");
  ::setenv(name, "a b", 1);
  CHECK(environment(name) == "a b");
  ::unsetenv(name);
}

// Puts a variable back.
struct Variable {
  explicit Variable(const char* variable) : name(variable), before(environment_if_set(variable)) {}
  ~Variable() {
    if (before)
      ::setenv(name, before->c_str(), 1);
    else
      ::unsetenv(name);
  }
  const char* name;
  std::optional<std::string> before;
};

TEST_CASE("The folder for what is cached is below XDG_CACHE_HOME or HOME, whichever is an absolute path") {
  const Variable caches("XDG_CACHE_HOME"), home("HOME");
  ::setenv("XDG_CACHE_HOME", "/caches", 1);
  ::setenv("HOME", "/home/me", 1);
  CHECK(cache_folder() == "/caches/libcomposer");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  CHECK(cache_folder() == "/home/me/.cache/libcomposer");
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", "", 1);
  CHECK(cache_folder().empty());
}

}  // namespace
}  // namespace composer::util::environment_test
