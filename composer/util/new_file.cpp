#include "composer/util/new_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <utility>

#include "composer/core/error.h"
#include "composer/util/write_all.h"

namespace composer::util {

NewFile::NewFile(std::filesystem::path target)
    : target_(std::move(target)), path_(target_.string() + ".tmp-" + std::to_string(::getpid())) {
  if (target_.has_parent_path()) std::filesystem::create_directories(target_.parent_path());
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail("create");
}

NewFile::~NewFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!committed_) ::unlink(path_.c_str());
}

void NewFile::write(const void* data, std::size_t size) {
  write_at(end_, data, size);
  end_ += size;
}

void NewFile::write_at(std::uint64_t offset, const void* data, std::size_t size) {
  if (!write_all(descriptor_, offset, data, size)) fail("write");
}

void NewFile::commit() {
  if (::fsync(descriptor_) != 0) fail("sync");
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("close");
  if (::rename(path_.c_str(), target_.c_str()) != 0) fail("rename");
  committed_ = true;
  if (!sync_folder(target_.parent_path())) fail("sync the folder of");
}

void NewFile::fail(const char* what) const {
  const std::string reason = std::strerror(errno);
  throw Error("could not ", what, " ", path_.string(), ": ", reason);
}

}  // namespace composer::util
