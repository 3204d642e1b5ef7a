// Two equal runs of a program are equal for `composer torture`, whichever plug-in writes a log or measures times: what
// differs are times alone. No plug-in is named here.
#include <filesystem>
#include <string>

#include "composer/callbacks/registry.h"
#include "composer/cli/same_run.h"
#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/loggers/registry.h"
#include "composer/trainer/trainer.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/quiet.h"
#include "tests/support/sandbox.h"
#include "tests/support/text.h"
#include "tests/support/tiny_images.h"
#include "tests/support/warnings.h"

namespace composer::test::equal_runs_test {
namespace {

namespace fs = std::filesystem;

template <class List>
Settings required_of(const Entry<List>& entry) {
  Settings settings;
  for (const OptionInfo& option : entry.options)
    if (option.example) settings[option.name] = *option.example;
  return settings;
}

void add(TrainerOptions& options, const Callbacks& list) { options.callbacks = list; }
void add(TrainerOptions& options, const Loggers& list) { options.loggers = list; }

// Into the working directory, which becomes `to`.
template <class List>
void run_into(const fs::path& to, const Entry<List>& entry) {
  const Sandbox sandbox;
  const Quiet quiet;
  const Warnings warnings;
  {
    TrainerOptions options = tiny_image_options();
    options.eval_dataloader = options.train_dataloader;
    options.seed = 7;
    options.run_name = "equal";
    options.max_duration = "2ep";
    options.save_folder = "ck";
    options.save_interval = "1ba";
    add(options, entry.make(required_of(entry)));
    Trainer trainer(std::move(options));
    trainer.fit();
  }
  fs::copy(fs::current_path(), to, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
}

template <class List>
void check_equal(const Registry<List>& registry) {
  for (const std::string& name : registry.names()) {
    CAPTURE(name);
    const Folder folder;
    run_into(folder / "a", registry.find(name));
    run_into(folder / "b", registry.find(name));
    const cli::SameRun same = cli::compare_runs(folder / "a", folder / "b", {});
    CHECK(same.checkpoints >= 2);
    CHECK_MESSAGE(same.differences.empty(), listed(same.differences));
  }
}

TEST_CASE("Runs with the same callback are equal but for times") { check_equal(callbacks::registry()); }
TEST_CASE("Runs with the same logger are equal but for times") { check_equal(loggers::registry()); }

TEST_CASE("A line of a CSV log that differs in more than times is found, and one of a table of the user's is not") {
  const Folder folder;
  const std::string header = "step,epoch,batch,time,key,value\n";
  const auto differs = [&](const std::string& a, const std::string& b) {
    for (const auto& [name, text] : {std::pair("a", a), std::pair("b", b)}) {
      fs::create_directories(folder / name);
      write_text(folder / name / "log.csv", text);
    }
    return !cli::compare_runs(folder / "a", folder / "b", {}).differences.empty();
  };
  CHECK_FALSE(differs(header + "1,0,1,0.5,loss,2\n", header + "1,0,1,0.75,loss,2\n"));
  CHECK_FALSE(differs(header + "1,0,1,0.5,throughput/x,2\n", header + "1,0,1,0.5,throughput/x,3\n"));
  CHECK(differs(header + "1,0,1,0.5,loss,2\n", header + "1,0,1,0.5,loss,3\n"));
  CHECK(differs(header + "1,0,1,0.5,loss,2\n", header + "1,0,2,0.5,loss,2\n"));
  CHECK(differs(header + "1,0,1,0.5,\"a,b\",2\n", header + "1,0,1,0.5,\"a,c\",2\n"));
  CHECK(differs(header + "1,0,1,0.5,loss,2\n", header));
  CHECK_FALSE(differs("a,b\n1,2\n", "a,b\n1,3\n"));
  CHECK(cli::last_logged_batch(folder / "a") == 0);
  write_text(folder / "a" / "log.csv", header + "1,0,1,0.5,loss,2\n17,4,16,0.5,\"a,b\",2\n99,9,9");
  CHECK(cli::last_logged_batch(folder / "a") == 16);
}

}  // namespace
}  // namespace composer::test::equal_runs_test
