// How ranks end, by themselves and by signals, and what `composer launch` does then.
#include <algorithm>

#include "tests/cli/launched.h"
#include "tests/support/doctest.h"

namespace composer::test::launch_ends_test {
namespace {

namespace fs = std::filesystem;

TEST_CASE("The first rank that fails ends all others, is named and gives the exit code") {
  const LaunchResult exits = launch({"-n", "3"}, "[ $RANK != 1 ] || exit 3; exec sleep 100");
  CHECK(exits.code == 3);
  CHECK_MESSAGE(exits.err == "composer: rank 1 exited with 3; the other ranks are being ended\n", exits.err);
  const LaunchResult killed = launch({"-n", "3"}, "[ $RANK != 2 ] || kill -9 $$; exec sleep 100");
  CHECK(killed.code == 128 + SIGKILL);
  CHECK_MESSAGE(has(killed.err, "rank 2 was killed by SIGKILL (out of memory?)"), killed.err);
}

TEST_CASE("A rank that ends with 0 while others go on is no failure") {
  const LaunchResult result = launch({"-n", "3"}, "[ $RANK = 0 ] || { sleep 0.2; echo later; }");
  CHECK(result.code == 0);
  CHECK(result.out.size() == 2 * std::string("[1] later\n").size());
  CHECK(result.err.empty());
}

TEST_CASE("A rank that ends with 75 is not to blame if another one fails soon after") {
  const LaunchResult late = launch({"-n", "3"}, "[ $RANK = 1 ] || exit 75; sleep 0.3; exit 9");
  CHECK(late.code == 9);
  CHECK_MESSAGE(has(late.err, "rank 1 exited with 9"), late.err);
  CHECK_FALSE(has(late.err, "75"));
  const LaunchResult all = launch({"-n", "2"}, "exit 75");
  CHECK(all.code == 75);
  CHECK_MESSAGE(has(all.err, "exited with 75: it lost a rank"), all.err);
}

TEST_CASE("A rank that hangs while all others end with 75 is ended and named") {
  const LaunchResult result =
      launch({"-n", "3", "--grace", "0.3"}, "[ $RANK = 1 ] || exit 75; trap '' TERM; while :; do sleep 0.05; done");
  CHECK(result.code == 128 + SIGKILL);
  CHECK_MESSAGE(has(result.err, "exited with 75: it lost a rank; still running and being ended: rank 1\n"), result.err);
  CHECK(has(result.err, "rank 1 did not end within 0.3 s and will be killed"));
}

TEST_CASE("A rank that ignores SIGTERM is killed after the grace time, with what it has started") {
  const LaunchFolder folder;
  const LaunchResult result =
      launch({"-n", "2", "--grace", "0.3"}, "[ $RANK = 0 ] || { " + until_written(folder / "child") +
                                                "; exit 5; }; trap '' TERM; sh -c 'sleep 100; :' & " + "echo $! > " +
                                                folder / "child" + "; wait; while :; do sleep 1; done");
  CHECK(result.code == 5);
  CHECK_MESSAGE(has(result.err, "rank 0 did not end within 0.3 s and will be killed"), result.err);
  CHECK_FALSE(runs(wait_for_number(folder / "child")));
}

TEST_CASE("A checkpoint is written to its end although the shell around the program ends at SIGTERM") {
  const LaunchFolder folder;
  const LaunchResult result =
      launch({"-n", "2"}, "[ $RANK = 0 ] || { " + until_written(folder / "ready") + "; exit 5; }; " +
                              "sh -c 'trap : TERM; echo 1 > " + folder / "ready" +
                              "; sleep 5; sleep 0.3; echo saved > " + folder / "saved" + "'; :");
  CHECK(result.code == 5);
  CHECK(folder.read("saved") == "saved\n");
}

TEST_CASE("Nothing that a rank has started outlives the launch, in its process group or not") {
  const LaunchFolder folder;
  const LaunchResult result = launch({"-n", "2"}, "sleep 100 & echo $! > " + folder / "group$RANK" +
                                                      "; setsid sh -c 'echo $$ > " + folder / "session$RANK" +
                                                      "; exec sleep 100' & " + until_written(folder / "session$RANK"));
  CHECK(result.code == 0);
  for (const char* name : {"group0", "group1", "session0", "session1"}) {
    REQUIRE(number_in(folder / name) > 0);
    CHECK_FALSE(runs(number_in(folder / name)));
  }
}

TEST_CASE("After a failure all ranks start again, as often as --max-restarts allows") {
  const LaunchFolder folder;
  const std::string script = "echo start $RANK $TORCHELASTIC_RESTART_COUNT $MASTER_PORT >> " + folder / "starts" +
                             "; [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] || exit 0; [ $RANK = 1 ] || exec sleep 100; " +
                             "until grep -q \"start 0 $TORCHELASTIC_RESTART_COUNT\" " + folder / "starts" +
                             "; do sleep 0.01; done; exit 3";
  const LaunchResult good = launch({"-n", "2", "--max-restarts", "5"}, script);
  CHECK(good.code == 0);
  const std::string starts = folder.read("starts");
  for (const char* line : {"start 0 0 ", "start 1 0 ", "start 0 1 ", "start 1 1 ", "start 0 2 ", "start 1 2 "})
    CHECK(count(starts, line) == 1);
  CHECK(lines_of(starts).size() == 6);
  CHECK(has(good.err, "composer: restart 1 of 5\n"));
  CHECK(has(good.err, "composer: restart 2 of 5\n"));
  const LaunchResult bad = launch({"-n", "2", "--max-restarts", "1"}, script);
  CHECK(bad.code == 3);
  CHECK(count(bad.err, "rank 1 exited with 3") == 2);
}

TEST_CASE("SIGTERM is passed on once, no rank is started again, and the exit code is that of the ranks") {
  const LaunchFolder folder;
  const std::string ready = "echo $$ > " + folder / "ready$RANK" + "; while :; do sleep 0.02; done";
  const auto both_ready = [&] {
    return wait_for_number(folder / "ready0") > 0 && wait_for_number(folder / "ready1") > 0;
  };
  const auto start_anew = [&] { fs::remove(folder / "ready0"), fs::remove(folder / "ready1"); };
  {
    Launched launched(launch_command({"-n", "2", "--max-restarts", "3"},
                                     "n=0; trap 'n=$((n+1))' TERM; echo $$ > " + folder / "ready$RANK" +
                                         "; until [ $n -gt 0 ]; do sleep 0.02; done; "
                                         "for i in 1 2 3 4 5 6; do sleep 0.05; done; echo end $n"));
    REQUIRE(both_ready());
    launched.signal(SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ::kill(-launched.pid(), SIGTERM);  // as `timeout` does: to the process and to its group
    CHECK(launched.code() == 0);
    CHECK(count(launched.out(), "end 1") == 2);
    CHECK_FALSE(has(launched.err(), "composer:"));
  }
  start_anew();
  {
    Launched launched(launch_command({"-n", "2", "--max-restarts", "3"}, ready));
    REQUIRE(both_ready());
    launched.signal(SIGTERM);
    CHECK(launched.code() == 128 + SIGTERM);
    CHECK_FALSE(has(launched.err(), "restart"));
  }
  start_anew();
  {
    Launched launched(launch_command({"-n", "2"}, "trap 'echo usr1; exit 0' USR1; trap 'echo hup' HUP; " + ready));
    REQUIRE(both_ready());
    launched.signal(SIGHUP);
    REQUIRE(within(60, [&] { return count(launched.out(), "hup") == 2; }));
    launched.signal(SIGUSR1);
    CHECK(launched.code() == 0);
    CHECK(count(launched.out(), "usr1") == 2);
  }
}

TEST_CASE("A second signal is passed on as well, so that a program can end at once") {
  const LaunchFolder folder;
  Launched launched(
      launch_command({"-n", "2"}, "n=0; trap 'n=$((n+1)); echo int $n; [ $n = 1 ] || exit 7' INT; echo $$ > " +
                                      folder / "ready$RANK" + "; while :; do sleep 0.02; done"));
  wait_for_number(folder / "ready0"), wait_for_number(folder / "ready1");
  launched.signal(SIGINT);
  REQUIRE(within(60, [&] { return count(launched.out(), "int 1") == 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  launched.signal(SIGINT);
  CHECK(launched.code() == 7);
  CHECK(has(launched.out(), "int 2"));
}

TEST_CASE("A rank that fails after SIGTERM does not make the launcher send the others a second one") {
  const LaunchFolder folder;
  Launched launched(
      launch_command({"-n", "2"}, "n=0; trap 'n=$((n+1))' TERM; echo $$ > " + folder / "ready$RANK" +
                                      "; until [ $n -gt 0 ]; do sleep 0.02; done; [ $RANK = 0 ] || exit 5; "
                                      "for i in 1 2 3 4 5 6 7 8; do sleep 0.05; done; echo end $n"));
  wait_for_number(folder / "ready0"), wait_for_number(folder / "ready1");
  launched.signal(SIGTERM);
  CHECK(launched.code() == 5);
  CHECK(launched.out() == "end 1\n");
}

TEST_CASE("Ranks start with no signal blocked, and none ignored but SIGPIPE") {
  const LaunchResult result = composer_launch({"-n", "1", "--", "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"});
  CHECK(result.out == "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001000\n");
}

TEST_CASE("When the launcher is killed, its ranks and what they have started die") {
  const LaunchFolder folder;
  Launched launched(launch_command({"-n", "3"}, "trap '' TERM INT HUP; sleep 100 & echo $! > " + folder / "child$RANK" +
                                                    "; echo $$ > " + folder / "rank$RANK" + "; wait; sleep 100"));
  std::vector<pid_t> processes;
  for (const char* name : {"child0", "child1", "child2", "rank0", "rank1", "rank2"})
    processes.push_back(wait_for_number(folder / name));
  launched.signal(SIGKILL);
  CHECK(launched.code() == 128 + SIGKILL);
  CHECK(within(60, [&] { return std::ranges::none_of(processes, runs); }));
}

TEST_CASE("When the launcher's guard and then the launcher are killed, the ranks die all the same") {
  const LaunchFolder folder;
  Launched launched(launch_command({"-n", "2"}, "echo $$ > " + folder / "rank$RANK" + "; exec sleep 100"));
  const std::vector<pid_t> ranks = {wait_for_number(folder / "rank0"), wait_for_number(folder / "rank1")};
  const std::string launcher = std::to_string(launched.pid());
  std::ifstream children("/proc/" + launcher + "/task/" + launcher + "/children");
  pid_t guard = 0;
  for (pid_t pid = 0; children >> pid;)
    if (std::ranges::find(ranks, pid) == ranks.end()) guard = pid;
  REQUIRE(guard > 0);
  ::kill(guard, SIGKILL);
  REQUIRE(within(60, [&] { return !fs::exists("/proc/" + std::to_string(guard)); }));
  CHECK(std::ranges::all_of(ranks, runs));
  launched.signal(SIGKILL);
  CHECK(launched.code() == 128 + SIGKILL);
  CHECK(within(60, [&] { return std::ranges::none_of(ranks, runs); }));
}

TEST_CASE("Ctrl-C in a terminal reaches every rank once") {
  Launched launched(launch_command({"-n", "3", "--output", "prefix"},
                                   "n=0; trap 'n=$((n+1)); echo interrupts $n' INT; echo ready; "
                                   "until [ $n -gt 0 ]; do sleep 0.02; done; sleep 0.4; sleep 0.1; echo end $n"),
                    true);
  REQUIRE(within(60, [&] { return count(launched.screen(), "ready") == 3; }));
  launched.type("\x03");
  CHECK(launched.code() == 0);
  const std::string screen = launched.screen();
  CHECK(count(screen, "interrupts 1") == 3);
  CHECK_MESSAGE(count(screen, "end 1") == 3, screen);
}

TEST_CASE("Ctrl-Z stops the ranks and the launcher, and SIGCONT continues them") {
  Launched launched(launch_command({"-n", "2", "--output", "prefix"}, "echo rank $$; sleep 1; echo end"), true);
  REQUIRE(within(60, [&] { return count(launched.screen(), "rank") == 2; }));
  const auto state_of = [](pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(file, text);
    return text.substr(text.rfind(')') + 2, 1);
  };
  std::vector<pid_t> processes = {launched.pid()};
  for (const std::string& line : lines_of(launched.screen()))
    if (const std::size_t at = line.find("rank "); at != std::string::npos)
      processes.push_back(std::stoi(line.substr(at + 5)));
  REQUIRE(processes.size() == 3);
  launched.type("\x1a");
  for (const pid_t pid : processes) CHECK(within(60, [&] { return state_of(pid) == "T"; }));
  launched.signal(SIGCONT);
  CHECK(launched.code() == 0);
  CHECK(count(launched.screen(), "end") == 2);
}

}  // namespace
}  // namespace composer::test::launch_ends_test
