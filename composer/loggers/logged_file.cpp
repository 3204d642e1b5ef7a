#include "composer/loggers/logged_file.h"

#include <cerrno>
#include <fstream>
#include <system_error>
#include <vector>

#include "composer/core/error.h"
#include "composer/util/new_file.h"

namespace composer::loggers {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadBlock = 1 << 20;

std::string reason(int error) { return std::error_code(error, std::generic_category()).message(); }

class Reader {
 public:
  explicit Reader(const fs::path& path) : path_(path), file_(path, std::ios::binary), block_(kReadBlock) {
    if (!file_) throw Error(path_.string(), " cannot be read: ", reason(errno));
  }
  // The next block; empty at the end of the file.
  std::string_view next() {
    file_.read(block_.data(), static_cast<std::streamsize>(block_.size()));
    if (file_.bad()) throw Error(path_.string(), " cannot be read: ", reason(errno));
    return {block_.data(), static_cast<std::size_t>(file_.gcount())};
  }

 private:
  fs::path path_;
  std::ifstream file_;
  std::vector<char> block_;
};

}  // namespace

std::uint64_t size_of_file(const fs::path& file) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(file, error);
  if (error) throw Error(file.string(), " cannot be read: ", error.message());
  return size;
}

bool same_contents(const fs::path& a, const fs::path& b) {
  if (size_of_file(a) != size_of_file(b)) return false;
  Reader one(a), other(b);
  for (std::string_view block = one.next(); !block.empty(); block = one.next())
    if (block != other.next()) return false;
  return true;
}

void reject_other_contents(const std::string& where) {
  throw Error(where, " exists with other contents; set overwrite to replace it, or upload the file by another name");
}

void copy_logged_file(const LogFile& file, const fs::path& target) {
  std::error_code error;
  if (!file.overwrite && fs::exists(target, error)) {
    if (!fs::is_regular_file(target, error) || !same_contents(file.path, target)) reject_other_contents(target);
    return;
  }
  Reader from(file.path);
  util::NewFile to(target);
  for (std::string_view block = from.next(); !block.empty(); block = from.next()) to.write(block);
  to.commit();
}

}  // namespace composer::loggers
