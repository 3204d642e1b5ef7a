#pragma once
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace composer::cli {

// Assembles pieces of output into whole lines, each with a prefix. Bytes other than '
// ' are unchanged. A line that is longer than `longest` bytes is split.
class PrefixedLines {
 public:
  explicit PrefixedLines(std::string prefix, std::size_t longest = std::size_t{64} << 20);

  void add(std::string_view piece, std::string& out);  // appends the lines that are complete
  void finish(std::string& out);                       // appends the rest as a line, if there is one

 private:
  std::string prefix_, rest_;
  std::size_t longest_;
};

// The last lines of a stream of output. Keeps at most `lines` lines of at most `longest` bytes each.
class LastLines {
 public:
  explicit LastLines(std::size_t lines = 20, std::size_t longest = 1000) : most_(lines), longest_(longest) {}

  void add(std::string_view piece);
  bool empty() const { return lines_.empty(); }
  std::string text(const std::string& prefix) const;  // the lines, each with the prefix

 private:
  std::size_t most_, longest_;
  bool open_ = false;  // whether the last line has no end yet
  std::deque<std::string> lines_;
};

// Writes to a file descriptor that is shared with others and therefore stays blocking. Bytes are kept until they can be
// written without blocking. After an error of the descriptor, such as a closed pipe, output is dropped.
class Sink {
 public:
  explicit Sink(int descriptor);

  std::string& pending() { return pending_; }
  int descriptor() const { return descriptor_; }
  bool is_closed() const { return descriptor_ < 0; }
  bool has_pending() const { return !pending_.empty(); }
  bool full() const { return pending_.size() > kFull; }
  void write_some();  // after poll() has reported POLLOUT, or an error
  void drop() { pending_.clear(), written_ = 0; }
  void flush();  // waits until everything is written

 private:
  static constexpr std::size_t kFull = std::size_t{1} << 20;
  int descriptor_;
  std::size_t piece_;  // number of bytes that one write takes without blocking
  std::string pending_;
  std::size_t written_ = 0;  // number of bytes of pending_
};

}  // namespace composer::cli
