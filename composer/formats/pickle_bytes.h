#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace composer::formats {

// A pickle that is read from its front. Errors name the file, and the byte of the opcode that is being read.
class PickleBytes {
 public:
  // Both stay the caller's, and must remain.
  PickleBytes(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  std::size_t size() const { return bytes_.size(); }
  std::size_t left() const { return bytes_.size() - at_; }
  void begin();       // reads what stands before the opcodes
  unsigned opcode();  // the next
  std::string_view take(std::uint64_t size);
  std::string_view line();                  // without its end
  std::uint64_t number(std::size_t bytes);  // little endian
  double real();
  std::optional<std::int64_t> long_integer();  // unset: it has more than 8 bytes

  [[noreturn]] void fail(const std::string& what) const;    // damaged or forged
  [[noreturn]] void refuse(const std::string& what) const;  // in order, but not supported

 private:
  std::string_view bytes_;
  const std::string& name_;
  std::size_t at_ = 0;
  std::size_t opcode_at_ = 0;
};

}  // namespace composer::formats
