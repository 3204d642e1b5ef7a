#include "composer/util/name_format.h"

#include "composer/core/state.h"
#include "tests/support/doctest.h"

namespace composer::name_format_test {

TEST_CASE("Placeholders of ranks in the name of a file are those of the process") {
  const char* const format = "{run_name}/rank{rank}of{world_size:02}-ba{batch}";
  State state;
  state.run_name = "mnist";
  CHECK(util::format_name(format, state, &state.timestamp, "folder") == "mnist/rank0of01-ba0");
  state.rank = 3;
  state.world_size = 4;
  CHECK(util::format_name(format, state, &state.timestamp, "folder") == "mnist/rank3of04-ba0");
  CHECK(util::format_name("{rank}-{batch}", state, nullptr, "folder") == "3-{batch}");
  CHECK(util::format_name(format, "mnist", &state.timestamp) == "mnist/rank0of01-ba0");
}

TEST_CASE("Zeros before a number are grouped with its digits, as Python groups them") {
  Timestamp time;
  time.batch = 1234567;
  CHECK(util::format_name("{batch:012,}", "", &time) == "0,001,234,567");
  CHECK(util::format_name("{batch:=012,}", "", &time) == "0,001,234,567");
  CHECK(util::format_name("{batch:0=12_}", "", &time) == "0_001_234_567");
  CHECK(util::format_name("{batch:*=12,}", "", &time) == "***1,234,567");
  CHECK(util::format_name("{batch:>012,}", "", &time) == "0001,234,567");
}

TEST_CASE("Placeholders of one machine are those that a launcher has told, or those of all ranks") {
  State state;
  state.rank = 3;
  state.world_size = 4;
  const auto name = [&] {
    return util::format_name("{local_rank} of {local_world_size} on {node_rank}", state, nullptr, "folder");
  };
  CHECK(name() == "3 of 4 on 0");
  util::set_process_on_node({.local_rank = 1, .local_world_size = 2, .node_rank = 1});
  CHECK(name() == "1 of 2 on 1");
  util::set_process_on_node({});
  CHECK(name() == "3 of 4 on 0");
}

}  // namespace composer::name_format_test
