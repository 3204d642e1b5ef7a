// Lines of ranks, without processes.
#include "composer/cli/launch_output.h"

#include <array>
#include <csignal>
#include <string>
#include <unistd.h>

#include "tests/support/doctest.h"

namespace composer::test::launch_output_test {
namespace {

TEST_CASE("Pieces of lines become whole lines with the prefix, for every way to cut the text") {
  const std::string text("one\ntwo\r\n\n\0\xff\nrest", 17), expected("> one\n> two\r\n> \n> \0\xff\n> rest\n", 28);
  for (std::size_t size = 1; size <= text.size(); ++size) {
    CAPTURE(size);
    cli::PrefixedLines lines("> ");
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += size) lines.add(std::string_view(text).substr(at, size), out);
    CHECK(out == expected.substr(0, expected.size() - 7));
    lines.finish(out);
    CHECK(out == expected);
    lines.finish(out);
    CHECK(out == expected);
  }
}

TEST_CASE("A line that is too long is cut; one of exactly the longest length is not") {
  for (const std::size_t size : {1, 2, 4, 5, 20}) {
    CAPTURE(size);
    cli::PrefixedLines lines("> ", 4);
    std::string out;
    const std::string text = "1234\n123456789\n\nab";
    for (std::size_t at = 0; at < text.size(); at += size) lines.add(std::string_view(text).substr(at, size), out);
    lines.finish(out);
    CHECK(out == "> 1234\n> 1234\n> 5678\n> 9\n> \n> ab\n");
  }
}

TEST_CASE("The last lines are kept, with their ends if they are too long") {
  const std::string text = "1\n2\n3\n4444444\nab";
  for (std::size_t size = 1; size <= text.size(); ++size) {
    CAPTURE(size);
    cli::LastLines last(3, 5);
    CHECK(last.empty());
    for (std::size_t at = 0; at < text.size(); at += size) last.add(std::string_view(text).substr(at, size));
    CHECK(last.text("> ") == "> 3\n> 44444\n> ab\n");
  }
}

TEST_CASE("A sink writes in pieces that a pipe takes, and drops output once the reader is gone") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  auto* const before = ::signal(SIGPIPE, SIG_IGN);
  cli::Sink sink(ends[1]);
  sink.pending() = std::string(10'000, 'a') + std::string(10'000, 'b');
  std::string got;
  std::array<char, 30'000> buffer{};
  for (int i = 0; i < 100 && sink.has_pending(); ++i) {
    sink.write_some();
    const ssize_t size = ::read(ends[0], buffer.data(), buffer.size());
    CHECK(size <= 4096);  // PIPE_BUF of Linux
    got.append(buffer.data(), static_cast<std::size_t>(size));
  }
  CHECK(got == std::string(10'000, 'a') + std::string(10'000, 'b'));
  ::close(ends[0]);
  sink.pending() = "more";
  sink.flush();
  CHECK(sink.is_closed());
  CHECK_FALSE(sink.has_pending());
  ::close(ends[1]);
  ::signal(SIGPIPE, before);
}

}  // namespace
}  // namespace composer::test::launch_output_test
