#pragma once
#include <cstdint>
#include <optional>
#include <poll.h>
#include <string>
#include <utility>
#include <vector>

#include "composer/cli/launch_output.h"

namespace composer::cli {

// MIXED: passes rank 0's output through, and adds a prefix to the lines of others. PREFIX: adds one to the lines of
// rank 0, too. FILES: writes a file for each stream. RANK0: shows only rank 0's output.
enum class OutputMode : std::uint8_t { MIXED, PREFIX, FILES, RANK0 };

// Handles the output of the ranks of this machine.
class Streams {
 public:
  // `first` is the number of the first rank of this machine. Lines are passed to `out` and `err`.
  Streams(OutputMode mode, std::string folder, int first, Sink& out, Sink& err);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // The descriptors for stdout and stderr of the next rank; -1: those of this process. Valid until the next call.
  // Throws ConfigError if a file cannot be written.
  std::pair<int, int> open();
  void close_opened();

  void add_to(std::vector<pollfd>& polled) const;  // adds the descriptors to wait for
  void read_available();                           // passes on the available output
  bool waits_for_reader() const;                   // there may be more output, but `out` or `err` is full
  void finish();                                   // like read_available(), then also lines without an end

  // The last lines that the rank wrote to stderr, or otherwise to stdout, if they were not shown; each with its prefix.
  std::string unseen_lines(int rank) const;
  std::string file_of(int rank) const;  // the file of its stderr; empty if there are no files

 private:
  struct Stream {
    int rank = 0;  // on this machine, from 0
    int descriptor = -1;
    Sink* sink = nullptr;  // null: not shown
    PrefixedLines lines;
    LastLines last{};
    std::string file;
    std::int64_t from = 0;  // position in the file
  };
  int open_pipe(Stream& stream);
  int open_file(Stream& stream, const char* suffix) const;
  void read(Stream& stream);
  std::string prefix(int rank) const;

  OutputMode mode_;
  std::string folder_;
  int first_, count_ = 0;
  Sink &out_, &err_;
  std::vector<Stream> streams_;
  std::vector<int> opened_;
};

}  // namespace composer::cli
