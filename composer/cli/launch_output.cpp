#include "composer/cli/launch_output.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <poll.h>
#include <unistd.h>
#include <utility>

#include <sys/stat.h>

namespace composer::cli {

PrefixedLines::PrefixedLines(std::string prefix, std::size_t longest) : prefix_(std::move(prefix)), longest_(longest) {}

void PrefixedLines::add(std::string_view piece, std::string& out) {
  while (!piece.empty()) {
    const std::size_t end = piece.find('\n');
    const std::size_t room = longest_ - rest_.size();
    const bool complete = end != std::string_view::npos && end <= room;
    const std::size_t taken = complete ? end : std::min(room, piece.size());
    rest_.append(piece.substr(0, taken));
    piece.remove_prefix(taken + (complete ? 1 : 0));
    if (!complete && rest_.size() < longest_) return;
    if (!complete && piece.empty()) return;  // the end of the line may follow
    out.append(prefix_).append(rest_).push_back('\n');
    rest_.clear();
  }
}

void PrefixedLines::finish(std::string& out) {
  if (rest_.empty()) return;
  out.append(prefix_).append(rest_).push_back('\n');
  rest_.clear();
}

void LastLines::add(std::string_view piece) {
  while (!piece.empty()) {
    const std::size_t end = std::min(piece.find('\n'), piece.size());
    if (!open_) {
      lines_.emplace_back();
      if (lines_.size() > most_) lines_.pop_front();
    }
    std::string& line = lines_.back();
    line.append(piece.substr(0, end));
    if (line.size() > longest_) line.erase(0, line.size() - longest_);
    open_ = end == piece.size();
    piece.remove_prefix(std::min(end + 1, piece.size()));
  }
}

std::string LastLines::text(const std::string& prefix) const {
  std::string text;
  for (const std::string& line : lines_) text.append(prefix).append(line).push_back('\n');
  return text;
}

Sink::Sink(int descriptor) : descriptor_(descriptor), piece_(PIPE_BUF) {
  struct stat file {};
  if (::fstat(descriptor, &file) == 0 && S_ISREG(file.st_mode)) piece_ = kFull;
}

void Sink::write_some() {
  if (is_closed()) return drop();
  const std::size_t size = std::min(piece_, pending_.size() - written_);
  const ssize_t wrote = size == 0 ? 0 : ::write(descriptor_, pending_.data() + written_, size);
  if (wrote >= 0)
    written_ += static_cast<std::size_t>(wrote);
  else if (errno != EINTR && errno != EAGAIN)
    descriptor_ = -1;
  if (is_closed() || written_ == pending_.size()) return drop();
  if (written_ > kFull) pending_.erase(0, std::exchange(written_, 0));
}

void Sink::flush() {
  while (has_pending()) {
    pollfd writable{descriptor_, POLLOUT, 0};
    if (!is_closed()) ::poll(&writable, 1, -1);
    write_some();
  }
}

}  // namespace composer::cli
