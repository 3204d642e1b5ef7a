#include "composer/loggers/copy_into_run.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>

#include "composer/core/error.h"

namespace composer::loggers {
namespace {

namespace fs = std::filesystem;

bool have_same_contents(const fs::path& a, const fs::path& b) {
  std::error_code error;
  if (fs::file_size(a, error) != fs::file_size(b, error) || error) return false;
  std::ifstream first(a, std::ios::binary), second(b, std::ios::binary);
  return first && second &&
         std::equal(std::istreambuf_iterator<char>(first), {}, std::istreambuf_iterator<char>(second), {});
}

}  // namespace

void copy_into_run(std::string_view who, const std::string& from, const fs::path& to, bool overwrite) {
  std::error_code error;
  if (!overwrite && fs::exists(to, error)) {
    if (have_same_contents(from, to)) return;
    throw Error(who, ": ", to.string(), " exists with other contents; set overwrite of upload_file() to replace it");
  }
  fs::create_directories(to.parent_path(), error);
  fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
  if (error) throw Error(who, ": ", from, " cannot be copied to ", to.string(), ": ", error.message());
}

}  // namespace composer::loggers
