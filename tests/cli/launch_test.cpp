// What `composer launch` gives to the ranks that it starts, which are small scripts here, and what it shows of them.
#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>

#include "composer/cli/console.h"
#include "composer/device/cpu/cpu.h"
#include "composer/util/usable_processors.h"
#include "tests/cli/launched.h"
#include "tests/support/doctest.h"
#include "tests/support/in_child.h"
#include "tests/support/supported_by.h"

namespace composer::test::launch_test {
namespace {

namespace fs = std::filesystem;
using Options = std::vector<std::string>;

// "NAME=VALUE" lines with the prefix of a rank.
std::map<std::string, std::string> variables_of(const std::string& text, const std::string& prefix) {
  std::map<std::string, std::string> variables;
  for (const std::string& line : lines_of(text))
    if (const std::size_t equals = line.find('='); line.starts_with(prefix) && equals != std::string::npos)
      variables[line.substr(prefix.size(), equals - prefix.size())] = line.substr(equals + 1);
  return variables;
}

TEST_CASE("Every rank gets its own numbers, and rank 0 alone a socket that listens at MASTER_PORT") {
  Launched launched({"env", "-u", "OMP_NUM_THREADS", "TORCHELASTIC_USE_AGENT_STORE=True", "COMPOSER_MASTER_FD=77",
                     "RANK=9", composer_program(), "launch", "-n", "3", "--output", "prefix", "--", "env"});
  REQUIRE(launched.code() == 0);
  const std::string out = launched.out();
  std::string port;
  for (int rank = 0; rank < 3; ++rank) {
    auto variables = variables_of(out, "[" + std::to_string(rank) + "] ");
    const std::string number = std::to_string(rank);
    const std::map<std::string, std::string> expected = {
        {"RANK", number},
        {"LOCAL_RANK", number},
        {"WORLD_SIZE", "3"},
        {"LOCAL_WORLD_SIZE", "3"},
        {"NODE_RANK", "0"},
        {"GROUP_RANK", "0"},
        {"MASTER_ADDR", "127.0.0.1"},
        {"TORCHELASTIC_RESTART_COUNT", "0"},
        {"COMPOSER_LAUNCHER", "composer launch"},
        {"TORCH_CPP_LOG_LEVEL", "ERROR"},
        {"OMP_NUM_THREADS", std::to_string(std::max<std::int64_t>(1, util::usable_processors() / 3))}};
    for (const auto& [name, value] : expected) {
      CAPTURE(name);
      CHECK(variables[name] == value);
    }
    CHECK(count(out, "[" + number + "] RANK=") == 1);
    CHECK_FALSE(variables.contains("TORCHELASTIC_USE_AGENT_STORE"));
    CHECK(variables.contains("COMPOSER_MASTER_FD") == (rank == 0));
    CHECK(variables["COMPOSER_MASTER_FD"] != "77");
    if (rank == 0) port = variables["MASTER_PORT"];
    CHECK(std::stoi(variables["MASTER_PORT"]) > 0);
    CHECK(variables["MASTER_PORT"] == port);
  }
  // State 0A of /proc/net/tcp is LISTEN.
  const LaunchResult socket = launch({"-n", "2"}, R"(test $RANK != 0 || { printf '%04X ' $MASTER_PORT
      readlink /proc/self/fd/$COMPOSER_MASTER_FD; cat /proc/net/tcp; })");
  const std::string listening = ":" + socket.out.substr(0, 4) + " 00000000:0000 0A";
  CHECK(has(socket.out, "socket:["));
  CHECK_MESSAGE(has(socket.out, listening), socket.out);
}

TEST_CASE("Without a number of ranks, there is one for each accelerator of the machine") {
  struct Three final : CpuSupport {
    bool is_available() const override { return true; }
    int count() const override { return 3; }
  };
  const LaunchFolder folder;
  CHECK(ended_well(status_of_child([&] {
    const Three three;
    const SupportedBy supported(at::kCPU, three);
    std::ostringstream out, err;
    if (cli::run({"launch", "--log-folder", folder / "logs", "--", "true"}, {out, err}) != 0) ::_exit(1);
  })));
  CHECK(fs::exists(folder / "logs/rank-2.out"));
  CHECK_FALSE(fs::exists(folder / "logs/rank-3.out"));
}

TEST_CASE("Variables that are set already are kept: OMP_NUM_THREADS and TORCH_CPP_LOG_LEVEL") {
  Launched launched({"env", "OMP_NUM_THREADS=5", "TORCH_CPP_LOG_LEVEL=INFO", composer_program(), "launch", "-n", "1",
                     "--", "sh", "-c", "echo $OMP_NUM_THREADS $TORCH_CPP_LOG_LEVEL"});
  CHECK(launched.code() == 0);
  CHECK(launched.out() == "5 INFO\n");
}

TEST_CASE("Arguments reach the program as they are, also [1,2], an empty one and a second --") {
  const LaunchResult result = composer_launch({"-n", "1", "--", "printf", "<%s>", "[1,2]", "", "--", "-n", "a b"});
  CHECK(result.code == 0);
  CHECK(result.out == "<[1,2]><><--><-n><a b>");
}

TEST_CASE("Ranks inherit no descriptor of the launcher, except for the socket of rank 0") {
  // 3 is the folder that ls reads.
  const LaunchResult result = launch({"-n", "3", "--output", "prefix"}, "exec ls /proc/self/fd");
  CHECK(result.code == 0);
  for (const char* rank : {"[1] ", "[2] "}) CHECK(count(result.out, rank) == 4);
  CHECK(count(result.out, "[0] ") == 5);
}

TEST_CASE("Lines of all ranks come whole with their prefix, also half lines, a megabyte and bytes of all values") {
  const LaunchResult result = launch({"-n", "4", "--output", "prefix"}, R"(
      for i in 1 2 3; do head -c 1000000 /dev/zero | tr '\0' $RANK; echo; done
      printf 'a\0\001\200\377\rb\n'; printf half; sleep 0.05; printf '%s\n' way; printf 'no end'
      echo error >&2)");
  CHECK(result.code == 0);
  std::map<std::string, int> seen;
  for (const std::string& line : lines_of(result.out)) {
    const std::string rank = line.substr(0, 4), text = line.substr(4);
    REQUIRE(rank.size() == 4);
    if (text.size() == 1000000 && text == std::string(1000000, rank[1])) ++seen[rank + "megabyte"];
    if (text == std::string("a\0\001\200\377\rb", 7) || text == "halfway" || text == "no end") ++seen[rank + text];
  }
  CHECK(seen.size() == 16);
  CHECK(lines_of(result.out).size() == 4 * 6);
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(seen["[" + std::to_string(rank) + "] megabyte"] == 3);
    CHECK(count(result.err, "[" + std::to_string(rank) + "] error\n") == 1);
  }
  CHECK(result.out.ends_with("no end\n"));
}

TEST_CASE("Without options, rank 0's output passes through and the others' lines get a prefix") {
  const LaunchResult result =
      launch({"-n", "2"}, R"([ $RANK = 1 ] || { printf 'bar\rbar'; exit; }; echo one; echo two >&2)");
  CHECK(result.code == 0);
  CHECK(has(result.out, "bar\rbar"));
  CHECK(has(result.out, "[1] one\n"));
  CHECK_FALSE(has(result.out, "[0]"));
  CHECK(result.err == "[1] two\n");
}

TEST_CASE("With rank0, other ranks are silent, and the last lines of one that fails are shown once") {
  const Options options = {"-n", "3", "--output", "rank0"};
  const LaunchResult good = launch(options, "echo out $RANK; echo err $RANK >&2");
  CHECK(good.code == 0);
  CHECK(good.out == "out 0\n");
  CHECK(good.err == "err 0\n");
  const LaunchResult bad =
      launch(options, R"([ $RANK = 2 ] || exec sleep 100; seq 1 100 >&2; echo out; printf why >&2; exit 4)");
  CHECK(bad.code == 4);
  CHECK(bad.out.empty());
  CHECK_MESSAGE(has(bad.err, "composer: rank 2 exited with 4"), bad.err);
  CHECK(has(bad.err, "[2] 100\n[2] why\n"));
  CHECK_FALSE(has(bad.err, "[2] 50\n"));
  CHECK(count(bad.err, "why") == 1);
}

TEST_CASE("With files, every rank has a file for each stream, which is appended to") {
  const LaunchFolder folder;
  const Options options = {"-n", "2", "--log-folder", folder / "logs/new"};
  const LaunchResult first = launch(options, "echo out $RANK; echo err $RANK >&2");
  CHECK(first.code == 0);
  CHECK((first.out + first.err).empty());
  const LaunchResult second = launch(options, "[ $RANK = 1 ] || exec sleep 100; echo no data >&2; exit 6");
  CHECK(second.code == 6);
  CHECK(has(second.err, "rank 1 exited with 6"));
  CHECK(has(second.err, "rank-1.err"));
  CHECK(has(second.err, "[1] no data\n"));
  CHECK_FALSE(has(second.err, "err 1"));
  CHECK(folder.read("logs/new/rank-0.out") == "out 0\n");
  CHECK(folder.read("logs/new/rank-1.err") == "err 1\nno data\n");
}

TEST_CASE("A port that is in use is an error") {
  const LaunchFolder folder;
  Launched first(launch_command({"-n", "1"}, "echo $MASTER_PORT > " + folder / "port" + "; exec sleep 100"));
  const std::string port = std::to_string(wait_for_number(folder / "port"));
  const LaunchResult second = launch({"-n", "1", "--master-port", port}, "echo started");
  CHECK(second.code == 2);
  CHECK_MESSAGE(second.err == "composer: --master-port: cannot listen on port " + port + ": Address already in use\n",
                second.err);
  CHECK(second.out.empty());
}

TEST_CASE("In a terminal, rank 0 alone sees the terminal, and may read from it") {
  Launched launched(launch_command({"-n", "2"},
                                   "test -t 0 && echo in $RANK; test -t 1 && echo out $RANK; "
                                   "test -t 2 && echo err $RANK; read line; echo $RANK read $line"),
                    true);
  REQUIRE(within(60, [&] { return has(launched.screen(), "err 0"); }));
  launched.type("text\n");
  CHECK(launched.code() == 0);
  const std::string screen = launched.screen();
  for (const char* text : {"in 0", "out 0", "err 0", "0 read text"}) CHECK_MESSAGE(has(screen, text), screen);
  for (const char* text : {"in 1", "out 1", "err 1"}) CHECK_FALSE(has(screen, text));
  CHECK(has(screen, "[1] 1 read\r\n"));
}

TEST_CASE("Rank 0 alone reads stdin") {
  Launched launched({"sh", "-c", "echo given | \"$0\" launch -n 2 --output prefix -- cat", composer_program()});
  CHECK(launched.code() == 0);
  CHECK(launched.out() == "[0] given\n");
}

TEST_CASE("Ranks go on when nobody reads their output any more") {
  const LaunchFolder folder;
  for (const char* mode : {"--output=prefix", "--grace=1"}) {
    CAPTURE(mode);
    Launched launched({"sh", "-c",
                       R"({ "$0" launch -n 2 "$1" -- sh -c 'for i in 1 2 3; do seq 1 3000; sleep 0.05; done 2> /dev/null
                          echo done > $0$RANK' "$2"; echo $? > "$2"; } | head -1)",
                       composer_program(), mode, folder / "done"});
    CHECK(launched.code() == 0);
    CHECK(count(launched.out(), "\n") == 1);
    CHECK(within(60, [&] { return folder.read("done") == "0\n"; }));
    CHECK(folder.read("done0") == "done\n");
    CHECK(folder.read("done1") == "done\n");
    for (const char* name : {"done", "done0", "done1"}) fs::remove(folder / name);
  }
}

TEST_CASE("One rank and 64 ranks work") {
  CHECK(launch({"-n", "1"}, "echo $RANK $WORLD_SIZE").out == "0 1\n");
  const LaunchResult many = launch({"-n", "64", "--output", "prefix"}, "echo $RANK $WORLD_SIZE");
  CHECK(many.code == 0);
  std::vector<std::string> lines = lines_of(many.out), expected;
  for (int rank = 0; rank < 64; ++rank) {
    const std::string number = std::to_string(rank);
    expected.push_back("[" + number + "] " + number + " 64");
  }
  std::ranges::sort(lines), std::ranges::sort(expected);
  CHECK(lines == expected);
}

TEST_CASE("On several nodes, ranks are numbered over all of them, and only node 0 serves") {
  const std::string script =
      "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR:$MASTER_PORT "
      "${COMPOSER_MASTER_FD:+serves}.";
  const auto node = [&](const char* number, const std::string& port) {
    return launch({"--nnodes", "2", "--node-rank", number, "--master-addr", "localhost", "--master-port", port, "-n",
                   "2", "--output", "prefix"},
                  script);
  };
  const std::string port = variables_of(launch({"-n", "1"}, "echo port=$MASTER_PORT").out, "")["port"];
  const LaunchResult first = node("0", port), second = node("1", port);
  CHECK(first.code == 0);
  CHECK(second.code == 0);
  CHECK(has(first.out, "[0] 0 0 4 2 0 localhost:" + port + " serves.\n"));
  CHECK(has(first.out, "[1] 1 1 4 2 0 localhost:" + port + " .\n"));
  CHECK(has(second.out, "[2] 2 0 4 2 1 localhost:" + port + " .\n"));
  CHECK(has(second.out, "[3] 3 1 4 2 1 localhost:" + port + " .\n"));
}

TEST_CASE("A script whose interpreter does not exist is an error, said once") {
  const LaunchFolder folder;
  std::ofstream(folder / "script") << "#!/no/such/interpreter\n";
  fs::permissions(folder / "script", fs::perms::owner_all);
  const LaunchResult result = composer_launch({"-n", "3", "--", folder / "script"});
  CHECK(result.code == 127);
  CHECK(result.err ==
        "composer: launch: cannot start " + folder / "script" + ": No such file or directory (its interpreter?)\n");
}

TEST_CASE("Invalid options and programs that do not exist are errors of one line") {
  const LaunchFolder folder;
  std::ofstream(folder / "file") << "text";
  struct Row {
    Options options;
    int code;
    std::string text;
  };
  const std::vector<Row> rows = {
      {{"-n", "2"}, 2, "no program to start; it follows --"},
      {{"-n", "2", "--"}, 2, "no program to start; it follows --"},
      {{"-n", "0", "--", "true"}, 2, "--nproc: must be in [1, 1024], got 0"},
      {{"-n", "abc", "--", "true"}, 2, "abc"},
      {{"--such", "--", "true"}, 2, "--such"},
      {{"--grace", "-1", "--", "true"}, 2, "--grace: must be >= 0, got -1"},
      {{"--max-restarts", "-1", "--", "true"}, 2, "--max-restarts: must be >= 0, got -1"},
      {{"--output", "colors", "--", "true"}, 2, "--output: must be prefix, files or rank0, got colors"},
      {{"--output", "files", "--", "true"}, 2, "--log-folder"},
      {{"--output", "rank0", "--log-folder", folder / "logs", "--", "true"}, 2, "--log-folder"},
      {{"--log-folder", folder / "file/logs", "--", "true"}, 2, "--log-folder: cannot"},
      {{"--nnodes", "0", "--", "true"}, 2, "--nnodes: must be >= 1, got 0"},
      {{"--nnodes", "2", "--node-rank", "0", "--", "true"}, 2, "--nnodes 2: also needs --master-addr --master-port"},
      {{"--nnodes", "2", "--node-rank", "2", "--master-addr", "a", "--master-port", "1", "--", "true"},
       2,
       "--node-rank: must be < --nnodes (2), got 2"},
      {{"--node-rank", "1", "--", "true"}, 2, "--node-rank: must be < --nnodes (1), got 1"},
      {{"--master-port", "65536", "--", "true"}, 2, "--master-port: must be in [1, 65535], got 65536"},
      {{"-n", "2", "./train"}, 2, "-- must stand before the program, as in: composer launch -n 2 -- ./train"},
      {{"-n", "2", "--", "no-such-program"}, 127, "cannot start no-such-program: command not found"},
      {{"-n", "2", "--", "/no/such/program"}, 127, "cannot start /no/such/program: No such file or directory"},
      {{"-n", "2", "--", folder / "file"}, 126, "Permission denied"}};
  for (const Row& row : rows) {
    CAPTURE(row.text);
    Options arguments = row.options;
    arguments.insert(arguments.begin(), "launch");
    std::ostringstream out, err;
    CHECK(cli::run(arguments, {out, err}) == row.code);
    CHECK_MESSAGE(has(err.str(), row.text), err.str());
    CHECK(err.str().starts_with("composer: "));
    CHECK(count(err.str(), "\n") == 1);
    CHECK(out.str().empty());
  }
}

}  // namespace
}  // namespace composer::test::launch_test
