#pragma once
#include <cstdint>
#include <optional>
#include <poll.h>
#include <string>
#include <utility>
#include <vector>

#include "composer/cli/launch_output.h"

namespace composer::cli {

// MIXED: rank 0's output passes through, the others' lines get a prefix. PREFIX: also those of rank 0. FILES: a file
// for each stream. RANK0: only rank 0's output is shown.
enum class OutputMode : std::uint8_t { MIXED, PREFIX, FILES, RANK0 };

// The output of the ranks of this machine.
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

  void add_to(std::vector<pollfd>& polled) const;  // what to wait for
  void read_available();                           // passes on what is there
  bool waits_for_reader() const;                   // there may be more, but `out` or `err` is full
  void finish();                                   // as read_available(); then also lines without an end

  // The last lines that the rank wrote to stderr, or else to stdout, if they were not shown; each with its prefix.
  std::string unseen_lines(int rank) const;
  std::string file_of(int rank) const;  // of stderr; empty without files

 private:
  struct Stream {
    int rank = 0;  // of this machine, from 0
    int descriptor = -1;
    Sink* sink = nullptr;  // null: not shown
    PrefixedLines lines;
    LastLines last{};
    std::string file;
    std::int64_t from = 0;  // of the file
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
