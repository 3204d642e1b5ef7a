// Memory of the system by pages. Internal.
#pragma once
#include <cstddef>

namespace composer::util {

// A reserved stretch of addresses, which costs nothing until it is written to.
class AddressSpace {
 public:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  // Reserves `bytes`, or half as often as the limits of the process demand; size() is 0 if there is nothing to have.
  explicit AddressSpace(std::size_t bytes);
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  std::byte* begin() const { return begin_; }  // at a huge page
  std::size_t size() const { return size_; }
  bool contains(const void* address) const {
    return address >= static_cast<const void*>(begin_) && address < static_cast<const void*>(begin_ + size_);
  }
  // Makes the first `bytes` usable; those that are already stay so. False: the system refuses.
  bool commit(std::size_t bytes);
  // The pages become zeros, and their memory the system's.
  void release(std::size_t offset, std::size_t bytes) const;
  void set_huge_pages(bool on) const;  // a wish

 private:
  std::byte* reserved_ = nullptr;
  std::size_t reserved_bytes_ = 0;
  std::byte* begin_ = nullptr;
  std::size_t size_ = 0, committed_ = 0;
};

}  // namespace composer::util
