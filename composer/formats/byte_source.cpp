#include "composer/formats/byte_source.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include <sys/stat.h>

#include "composer/core/error.h"

namespace composer::formats {
namespace {

class Memory : public ByteSource {
 public:
  Memory(std::string bytes, std::string name) : ByteSource(std::move(name)), bytes_(std::move(bytes)) {}
  std::uint64_t size() const override { return bytes_.size(); }
  void read(std::uint64_t offset, void* to, std::size_t size) const override {
    if (offset > bytes_.size() || size > bytes_.size() - offset)
      throw CheckpointError(name(), ": has ", bytes_.size(), " bytes; cannot read ", size, " bytes at byte ", offset);
    if (size > 0) std::memcpy(to, bytes_.data() + offset, size);
  }

 private:
  std::string bytes_;
};

class File : public ByteSource {
 public:
  explicit File(const std::filesystem::path& path) : ByteSource(path.string()) {
    // Without O_NONBLOCK, opening a pipe would wait for a writer.
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) throw CheckpointError("could not open ", name(), ": ", std::strerror(errno));
    struct stat status = {};
    const bool known = ::fstat(descriptor_, &status) == 0;
    if (known && S_ISREG(status.st_mode)) {
      size_ = static_cast<std::uint64_t>(status.st_size);
      return;
    }
    const std::string reason = known ? "not a regular file" : std::strerror(errno);
    ::close(descriptor_);
    throw CheckpointError("could not read ", name(), ": ", reason);
  }
  ~File() override { ::close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::uint64_t size() const override { return size_; }

  void read(std::uint64_t offset, void* to, std::size_t size) const override {
    auto* next = static_cast<char*>(to);
    while (size > 0) {
      const ssize_t got = ::pread(descriptor_, next, size, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw CheckpointError("could not read ", name(), " at byte ", offset, ": ", std::strerror(errno));
      if (got == 0) throw CheckpointError(name(), ": ends at byte ", offset, ", but had ", size_, " bytes when opened");
      next += got;
      offset += static_cast<std::uint64_t>(got);
      size -= static_cast<std::size_t>(got);
    }
  }

 private:
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace

ByteSource::~ByteSource() = default;

std::string ByteSource::read(std::uint64_t offset, std::size_t size) const {
  std::string bytes(size, '\0');
  read(offset, bytes.data(), size);
  return bytes;
}

std::unique_ptr<ByteSource> open_file(const std::filesystem::path& path) { return std::make_unique<File>(path); }

std::unique_ptr<ByteSource> bytes_in_memory(std::string bytes, std::string name) {
  return std::make_unique<Memory>(std::move(bytes), std::move(name));
}

}  // namespace composer::formats
