#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace composer::data::detail {

// An array of plain values that grows. Unlike a vector, it is neither copied nor held twice when it does: the C library
// moves the pages of a large block.
template <class T>
class Growing {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Growing() = default;
  Growing(Growing&& other) noexcept { swap(other); }
  Growing& operator=(Growing&& other) noexcept {
    swap(other);
    return *this;
  }
  Growing(const Growing&) = delete;
  Growing& operator=(const Growing&) = delete;
  ~Growing() { std::free(data_); }

  // Room for `count` more values, whose contents are undefined.
  T* extend(std::size_t count) {
    if (count > room_ - size_) resize_room(std::max(size_ + count, size_ + size_ / 2));
    size_ += count;
    return data_ + (size_ - count);
  }
  void clear() { size_ = 0; }  // keeps the memory
  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  const T& operator[](std::size_t i) const { return data_[i]; }

  void fit() {
    if (room_ > size_ && size_ > 0) resize_room(size_);
  }

 private:
  void resize_room(std::size_t room) {
    void* const moved = std::realloc(static_cast<void*>(data_), room * sizeof(T));
    if (!moved) throw std::bad_alloc();
    data_ = static_cast<T*>(moved);
    room_ = room;
  }
  void swap(Growing& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(room_, other.room_);
  }

  T* data_ = nullptr;
  std::size_t size_ = 0, room_ = 0;
};

}  // namespace composer::data::detail
