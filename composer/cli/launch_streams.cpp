#include "composer/cli/launch_streams.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <unistd.h>

#include "composer/core/error.h"

namespace composer::cli {

Streams::Streams(OutputMode mode, std::string folder, int first, Sink& out, Sink& err)
    : mode_(mode), folder_(std::move(folder)), first_(first), out_(out), err_(err) {}

Streams::~Streams() {
  close_opened();
  for (const Stream& stream : streams_)
    if (stream.descriptor >= 0) ::close(stream.descriptor);
}

std::string Streams::prefix(int rank) const { return join('[', first_ + rank, "] "); }

std::pair<int, int> Streams::open() {
  close_opened();
  const int rank = count_++;
  const bool inherits = first_ + rank == 0 && (mode_ == OutputMode::MIXED || mode_ == OutputMode::RANK0);
  if (inherits) return {-1, -1};
  std::array<int, 2> ends{};
  for (std::size_t i = 0; i < ends.size(); ++i) {
    Stream stream{.rank = rank, .lines = PrefixedLines(prefix(rank))};
    if (mode_ != OutputMode::RANK0) stream.sink = i == 0 ? &out_ : &err_;
    ends[i] = mode_ == OutputMode::FILES ? open_file(stream, i == 0 ? "out" : "err") : open_pipe(stream);
    opened_.push_back(ends[i]);
    streams_.push_back(std::move(stream));
  }
  return {ends[0], ends[1]};
}

int Streams::open_pipe(Stream& stream) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error("launch: cannot make a pipe: ", std::generic_category().message(errno));
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);  // for this end only
  stream.descriptor = ends[0];
  return ends[1];
}

int Streams::open_file(Stream& stream, const char* suffix) const {
  stream.file = (std::filesystem::path(folder_) / join("rank-", first_ + stream.rank, '.', suffix)).string();
  const int descriptor = ::open(stream.file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0)
    throw ConfigError("--log-folder: cannot write ", stream.file, ": ", std::generic_category().message(errno));
  stream.from = ::lseek(descriptor, 0, SEEK_END);
  return descriptor;
}

void Streams::close_opened() {
  for (const int descriptor : opened_) ::close(descriptor);
  opened_.clear();
}

void Streams::add_to(std::vector<pollfd>& polled) const {
  for (const Stream& stream : streams_)
    if (stream.descriptor >= 0 && (stream.sink == nullptr || !stream.sink->full()))
      polled.push_back({stream.descriptor, POLLIN, 0});
}

void Streams::read(Stream& stream) {
  std::array<char, 65536> buffer;
  while (stream.descriptor >= 0 && (stream.sink == nullptr || !stream.sink->full())) {
    const ssize_t got = ::read(stream.descriptor, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      ::close(stream.descriptor);
      stream.descriptor = -1;
      if (stream.sink != nullptr) stream.lines.finish(stream.sink->pending());
      return;
    }
    const std::string_view piece(buffer.data(), static_cast<std::size_t>(got));
    if (stream.sink != nullptr)
      stream.lines.add(piece, stream.sink->pending());
    else
      stream.last.add(piece);
  }
}

void Streams::read_available() {
  for (Stream& stream : streams_) read(stream);
}

bool Streams::waits_for_reader() const {
  return std::ranges::any_of(streams_, [](const Stream& stream) {
    return stream.descriptor >= 0 && stream.sink != nullptr && stream.sink->full();
  });
}

void Streams::finish() {
  read_available();
  for (Stream& stream : streams_)
    if (stream.sink != nullptr) stream.lines.finish(stream.sink->pending());
}

std::string Streams::file_of(int rank) const {
  for (const Stream& stream : streams_)
    if (stream.rank == rank && stream.file.ends_with(".err")) return stream.file;
  return "";
}

std::string Streams::unseen_lines(int rank) const {
  std::string text;
  for (const Stream& stream : streams_) {
    if (stream.rank != rank) continue;
    LastLines last = stream.last;
    if (!stream.file.empty()) {
      constexpr std::int64_t kMost = 20'000;
      std::ifstream file(stream.file, std::ios::binary | std::ios::ate);
      const std::int64_t begin = std::max(stream.from, static_cast<std::int64_t>(file.tellg()) - kMost);
      file.seekg(begin);
      last.add(std::string(std::istreambuf_iterator<char>(file), {}));
    }
    if (!last.empty()) text = last.text(prefix(rank));  // stderr has priority
  }
  return text;
}

}  // namespace composer::cli
