#include "composer/device/side_stream.h"

#include <vector>

#include "tests/support/doctest.h"

namespace composer::test::side_stream_test {
namespace {

constexpr int kStreams = 4;

// Those of a device that has so many, in turn.
struct InTurn {
  c10::Stream operator()() {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kPrivateUse1, 0),
                       static_cast<c10::StreamId>(1 + next++ % kStreams));
  }
  int next = 0;
};

TEST_CASE("Nobody gets a stream that somebody has, and each is given again when it is given back") {
  InTurn in_turn;
  const auto next = [&in_turn] { return in_turn(); };
  std::vector<SideStream> all;
  for (int i = 0; i < kStreams; ++i) {
    all.push_back(take_stream(next));
    REQUIRE(all.back());
    for (int before = 0; before < i; ++before) CHECK(*all.back() != *all[static_cast<std::size_t>(before)]);
  }
  CHECK_FALSE(take_stream(next));
  SideStream copy = all[2];
  all[2].reset();
  CHECK_FALSE(take_stream(next));  // the copy has it
  const c10::Stream third = *copy;
  copy.reset();
  const SideStream again = take_stream(next);
  REQUIRE(again);
  CHECK(*again == third);
}

TEST_CASE("A CPU has no streams") { CHECK_FALSE(side_stream(at::kCPU)); }

}  // namespace
}  // namespace composer::test::side_stream_test
