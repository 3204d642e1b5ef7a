// What `composer torture` finds out. The programs that it kills here are scripts that do well, or badly, on purpose; a
// real one is tests/torture.
#include <chrono>
#include <csignal>
#include <thread>

#include "tests/cli/cli.h"
#include "tests/support/doctest.h"

namespace composer::test::torture_test {
namespace {

namespace fs = std::filesystem;

// A run whose checkpoints a script hands out.
struct Prepared {
  Prepared() { train_into(folder / "ck"); }
  std::string copy(const std::string& to = "ck") const {
    return "[ -d " + to + " ] || { cp -r " + (folder / "ck") + " tmp && mv -T tmp " + to + "; }; ";
  }
  CliFolder folder;
};

Answer torture(std::vector<std::string> options, const std::string& script) {
  const fs::path folder = fs::temp_directory_path() / ("composer-torture-test-" + std::to_string(getpid()));
  options.insert(options.begin(), {"torture", "--folder", folder});
  options.insert(options.end(), {"--", "sh", "-c", script});
  Answer answer = composer_program(options);
  fs::remove_all(folder);  // it stays where something was wrong
  return answer;
}

const std::vector<std::string> kThrice = {"--kills", "3", "--min", "0.1", "--max", "0.15"};

TEST_CASE("torture says that nothing was lost of a program that loses nothing") {
  const Prepared prepared;
  const Answer good = torture(kThrice, prepared.copy() + R"(sleep 0.3; echo '{"batch":4,"loss":1}' > log.jsonl)");
  CHECK_MESSAGE(good.code == 0, (good.out + good.err));
  CHECK(good.says("nothing was lost"));
  CHECK(good.says("3 in "));
}

TEST_CASE("torture says that nothing is known if no kill came after a checkpoint, and ends with 2") {
  const Prepared prepared;
  const Answer early = torture(kThrice, "sleep 0.4; " + prepared.copy());
  CHECK(early.code == 2);
  CHECK_MESSAGE(early.complains("no kill came after a checkpoint"), (early.out + early.err));
  CHECK_FALSE(early.says("nothing was lost"));
}

TEST_CASE("torture finds a log that has lines twice, and a checkpoint that one run has and the other has not") {
  const Prepared prepared;
  const Answer twice = torture(kThrice, prepared.copy() + R"(echo '{"batch":4,"loss":1}' >> log.jsonl; sleep 0.3)");
  CHECK(twice.code == 1);
  CHECK_MESSAGE(twice.says("log.jsonl: line 2"), twice.out);
  CHECK(twice.says("--seed 1 --only-run 1"));
  const Answer more =
      torture(kThrice, "if [ -d ck ]; then " + prepared.copy("more") + "fi; " + prepared.copy() + "sleep 0.3");
  CHECK(more.code == 1);
  CHECK_MESSAGE(more.says("is unexpected"), more.out);
}

TEST_CASE("torture finds values that differ, but not those that clocks tell") {
  const Prepared prepared;
  const std::string log = prepared.copy() + R"(echo "{\"batch\":4,\"loss\":1,\"NAME\":$$}" > log.jsonl)";
  const auto with = [&](const std::string& name) { return std::string(log).replace(log.find("NAME"), 4, name); };
  CHECK(torture({"--kills", "0"}, with("time")).code == 0);
  CHECK(torture({"--kills", "0"}, with("time/train")).code == 0);
  CHECK(torture({"--kills", "0"}, with("time/batch_in_epoch")).code == 1);  // a count
  CHECK(torture({"--kills", "0"}, with("accuracy")).code == 1);
  CHECK(torture({"--kills", "0", "--ignore", "acc*"}, with("accuracy")).code == 0);
  CHECK(torture({"--kills", "0"}, prepared.copy() + "echo $$ > result").code == 0);
  CHECK(torture({"--kills", "0", "--compare", "res*"}, prepared.copy() + "echo $$ > result").code == 1);
}

TEST_CASE("torture finds a checkpoint that is damaged after a kill, and one that went back") {
  const Prepared prepared;
  const Answer damaged =
      torture(kThrice, prepared.copy() + "f=ck/latest/model.safetensors; cp $f whole; : > $f; sleep 0.3; mv whole $f");
  CHECK(damaged.code == 1);
  CHECK_MESSAGE(damaged.says("model.safetensors: has 0 bytes"), damaged.out);
  const Answer back = torture(kThrice, prepared.copy() + "[ ! -e again ] || rm -rf ck/ep*-ba4; : > again; sleep 0.3; " +
                                           "rm -rf ck; " + prepared.copy());
  CHECK(back.code == 1);
  CHECK_MESSAGE(back.says("one of batch 4 existed before"), back.out);
}

TEST_CASE("torture finds a temporary folder that stays when the program has ended") {
  const Prepared prepared;
  const Answer left = torture({"--kills", "0"}, prepared.copy() + "mkdir -p ck/.tmp-run-1-1");
  CHECK(left.code == 1);
  CHECK_MESSAGE(left.says(".tmp-run-1-1"), left.out);
}

TEST_CASE("torture finds a log that is further than two save intervals from the newest checkpoint") {
  const Prepared prepared;
  const Answer late = torture(kThrice, prepared.copy() + R"(echo '{"batch":9}' > log.jsonl; sleep 0.3)");
  CHECK(late.code == 1);
  CHECK_MESSAGE(late.says("more than two save intervals of 2"), late.out);
}

TEST_CASE("torture tells of a program that fails, of one without checkpoints and of one that is not there") {
  const Prepared prepared;
  const Answer fails = torture({}, "echo no data >&2; exit 3");
  CHECK(fails.code == 2);
  CHECK_MESSAGE(fails.complains("exit code 3"), fails.err);
  CHECK(fails.complains("no data"));
  CHECK(fails.is_one_line());
  CHECK(torture({}, "true").complains("no checkpoint"));
  CHECK(composer_program({"torture", "--", "no-such-program"}).code == 2);
  const Answer later = torture(kThrice, "[ ! -d ck ] || exit 4; " + prepared.copy() + "sleep 0.3");
  CHECK(later.code == 1);
  CHECK_MESSAGE(later.says("exit code 4"), later.out);
}

TEST_CASE("torture ends what it has started when it is interrupted") {
  const CliFolder folder;
  const std::string mark = folder / "alive";
  std::thread interrupt([&] {
    while (!fs::exists(mark)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::raise(SIGTERM);
  });
  const Answer answer = torture({}, "sleep 30 & echo $! > " + mark + "; wait");
  interrupt.join();
  CHECK(answer.code == 2);
  CHECK(answer.complains("interrupted"));
  int sleeping = 0;
  std::ifstream(mark) >> sleeping;
  REQUIRE(sleeping > 1);
  for (int i = 0; i < 200 && fs::exists("/proc/" + std::to_string(sleeping) + "/exe"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK_FALSE(fs::exists("/proc/" + std::to_string(sleeping) + "/exe"));
}

}  // namespace
}  // namespace composer::test::torture_test
