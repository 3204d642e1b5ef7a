#pragma once
#include <iostream>
#include <streambuf>

namespace composer::test {

// While it lives, what is written to std::cout and std::cerr goes nowhere. From any thread.
class Quiet {
 public:
  Quiet() = default;
  ~Quiet() {
    std::cout.rdbuf(out_);
    std::cerr.rdbuf(err_);
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  struct Nowhere final : std::streambuf {
    int_type overflow(int_type c) override { return traits_type::not_eof(c); }
    std::streamsize xsputn(const char*, std::streamsize size) override { return size; }
  };
  Nowhere nowhere_;
  std::streambuf* out_ = std::cout.rdbuf(&nowhere_);
  std::streambuf* err_ = std::cerr.rdbuf(&nowhere_);
};

}  // namespace composer::test
