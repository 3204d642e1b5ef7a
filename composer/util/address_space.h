// Reserves addresses and commits pages of memory. Internal.
#pragma once
#include <cstddef>

namespace composer::util {

// A reserved stretch of addresses. It takes no memory until it is written to.
class AddressSpace {
 public:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  // Reserves `bytes`, halved until the limits of the process allow it. size() is 0 if even the smallest size is
  // refused.
  explicit AddressSpace(std::size_t bytes);
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  std::byte* begin() const { return begin_; }  // aligned to a huge page
  std::size_t size() const { return size_; }
  bool contains(const void* address) const {
    return address >= static_cast<const void*>(begin_) && address < static_cast<const void*>(begin_ + size_);
  }
  // Makes the first `bytes` usable; what is usable already stays usable. Returns false if the system refuses.
  bool commit(std::size_t bytes);
  // Returns the memory of these pages to the system. Reading them afterwards gives zeros.
  void release(std::size_t offset, std::size_t bytes) const;
  void set_huge_pages(bool on) const;  // the system may ignore it

 private:
  std::byte* reserved_ = nullptr;
  std::size_t reserved_bytes_ = 0;
  std::byte* begin_ = nullptr;
  std::size_t size_ = 0, committed_ = 0;
};

}  // namespace composer::util
