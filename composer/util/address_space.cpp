#include "composer/util/address_space.h"

#include <algorithm>

#include <sys/mman.h>

namespace composer::util {
namespace {

constexpr std::size_t kSmallest = std::size_t{64} << 20;
constexpr std::size_t kCommitStep = std::size_t{64} << 20;

}  // namespace

AddressSpace::AddressSpace(std::size_t bytes) {
  for (std::size_t tried = bytes; tried >= kSmallest; tried /= 2) {
    void* reserved = ::mmap(nullptr, tried + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (reserved == MAP_FAILED) continue;
    reserved_ = static_cast<std::byte*>(reserved);
    reserved_bytes_ = tried + kHugePage;
    const std::size_t past = reinterpret_cast<std::size_t>(reserved_) % kHugePage;
    begin_ = reserved_ + (past == 0 ? 0 : kHugePage - past);
    size_ = tried / kHugePage * kHugePage;
    return;
  }
}

AddressSpace::~AddressSpace() {
  if (reserved_ != nullptr) ::munmap(reserved_, reserved_bytes_);
}

bool AddressSpace::commit(std::size_t bytes) {
  if (bytes <= committed_) return true;
  // Commits a large step at once; if memory is short, only what is needed.
  const std::size_t step = (bytes + kCommitStep - 1) / kCommitStep * kCommitStep;
  for (const std::size_t until : {std::min(step, size_), bytes})
    if (::mprotect(begin_ + committed_, until - committed_, PROT_READ | PROT_WRITE) == 0) {
      committed_ = until;
      return true;
    }
  return false;
}

void AddressSpace::release(std::size_t offset, std::size_t bytes) const {
  ::madvise(begin_ + offset, bytes, MADV_DONTNEED);
}

void AddressSpace::set_huge_pages(bool on) const {
  if (size_ > 0) ::madvise(begin_, size_, on ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

}  // namespace composer::util
