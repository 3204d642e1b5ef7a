#include "composer/util/temporary.h"

#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <unistd.h>

#include "composer/core/error.h"

namespace composer::util {
namespace {

namespace fs = std::filesystem;

fs::path folder_for_temporary_files() {
  std::error_code error;
  fs::path folder = fs::temp_directory_path(error);
  if (error) throw Error("the folder for temporary files cannot be used: ", error.message());
  return folder;
}

}  // namespace

fs::path make_temporary(TemporaryKind kind, const fs::path& parent, const std::string& prefix) {
  std::string path = parent / (prefix + "XXXXXX");
  if (kind == TemporaryKind::FOLDER) {
    if (::mkdtemp(path.data()) != nullptr) return path;
  } else if (const int descriptor = ::mkstemp(path.data()); descriptor >= 0) {
    ::close(descriptor);
    return path;
  }
  throw Error(parent.string(), ": no ", kind == TemporaryKind::FOLDER ? "folder" : "file",
              " can be made there: ", std::error_code(errno, std::generic_category()).message());
}

Temporary::Temporary(TemporaryKind kind, const std::string& prefix)
    : path_(make_temporary(kind, folder_for_temporary_files(), prefix)) {}

Temporary::~Temporary() {
  std::error_code ignored;
  if (!stays_) fs::remove_all(path_, ignored);
}

}  // namespace composer::util
