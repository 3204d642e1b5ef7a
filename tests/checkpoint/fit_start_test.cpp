// What would keep a checkpoint from being written is told before the first batch.
#include <csignal>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "composer/checkpoint/folder.h"
#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::fit_start_test {
namespace {

namespace fs = std::filesystem;

TrainerOptions options_in(const fs::path& folder) {
  TrainerOptions options = tiny_options();
  options.save_folder = folder / "ck";
  return options;
}

TEST_CASE("What cannot be saved is an error at the start of fit() that names it, and nothing is trained") {
  struct Row {
    const char* what;
    std::function<void(TrainerOptions&, const fs::path&)> change;
    const char* text;
  };
  const std::vector<Row> rows = {
      {"complex128",
       [](TrainerOptions& o, const fs::path&) { o.model->register_buffer("b", at::zeros({3}, at::kComplexDouble)); },
       "b is ComplexDouble"},
      {"sparse",
       [](TrainerOptions& o, const fs::path&) {
         o.model->register_buffer("b", at::zeros({3, 3}).to_sparse());
       },
       "b is Sparse"},
      {"run_name in Latin-1", [](TrainerOptions& o, const fs::path&) { o.run_name = "caf\xe9"; }, "run_name: "},
      {"the link's name", [](TrainerOptions& o, const fs::path&) { o.save_filename = "latest"; }, "collides"},
      {"leaves the folder", [](TrainerOptions& o, const fs::path&) { o.save_filename = "../x{batch}"; }, "leaves"},
      {"leaves the folder by run_name",
       [](TrainerOptions& o, const fs::path&) {
         o.run_name = "a/../../b";
         o.save_filename = "{run_name}/{batch}";
       },
       "leaves"},
      {"reserved", [](TrainerOptions& o, const fs::path&) { o.save_filename = ".tmp-x-1-{batch}"; }, "reserved"},
      {"too long", [](TrainerOptions& o, const fs::path&) { o.save_filename = join(std::string(300, 'n'), "{batch}"); },
       "301 bytes"},
      {"a file in the place of the folder",
       [](TrainerOptions&, const fs::path& folder) { std::ofstream(folder / "ck") << "x"; }, "cannot write"},
      {"a device in the place of the folder", [](TrainerOptions& o, const fs::path&) { o.save_folder = "/dev/null"; },
       "save_folder: /dev/null: cannot write"},
      {"a link to nothing in the place of the folder",
       [](TrainerOptions&, const fs::path& folder) { fs::create_symlink("nothing", folder / "ck"); }, "cannot write"},
      {"a folder that cannot be made",
       [](TrainerOptions& o, const fs::path&) { o.save_folder = "/proc/self/nothing/ck"; }, "cannot write"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const Folder folder;
    TrainerOptions options = options_in(folder.path());
    row.change(options, folder.path());
    Trainer trainer(std::move(options));
    std::string said;
    try {
      trainer.fit();
    } catch (const std::exception& error) {
      said = describe(error);
    }
    CAPTURE(said);
    CHECK(said.find(row.text) != std::string::npos);
    CHECK(trainer.state().timestamp.batch == 0);
  }
}

TEST_CASE("A link's name is checked as that of a checkpoint when the trainer is made, and may be no checkpoint's") {
  const Folder folder;
  const auto said = [&](const char* link, const char* filename = "ep{epoch}-ba{batch}", const char* run_name = "r") {
    TrainerOptions options = options_in(folder.path());
    options.run_name = run_name;
    options.save_filename = filename;
    options.save_latest_filename = link;
    return error_of([&] { const Trainer trainer(std::move(options)); });
  };
  CHECK(said("../l") == "save_latest_filename: the name ../l leaves save_folder");
  CHECK(said("/tmp/l") == "save_latest_filename: the name /tmp/l is an absolute path; it must lie below save_folder");
  CHECK(said(".tmp-l").starts_with("save_latest_filename: the name .tmp-l begins with .tmp-"));
  CHECK(said("ep1-ba8") ==
        "save_latest_filename: the name ep1-ba8 is that of a checkpoint, because save_filename is ep{epoch}-ba{batch}; "
        "choose another name");
  CHECK(said("ep1-ba8/x").find("is that of a checkpoint") != std::string::npos);
  CHECK(said("0003-0012", "{epoch:04}-{batch_in_epoch:04}").find("is that of a checkpoint") != std::string::npos);
  CHECK(said("r-1", "{run_name}-{batch}").find("is that of a checkpoint") != std::string::npos);
  for (const char* link : {"latest", "latest-rank{rank}.pt", "ep1-bax", "sub/ep1-ba8", ""})
    CHECK(said(link) == "no error");
  for (const char* link : {"latest", "latest-1", "3-12"}) CHECK(said(link, "{epoch:04}") == "no error");
}

TEST_CASE("save_ignore_keys that leave out all weights are an error before the first batch") {
  for (const char* glob : {"*", "model/*", "model", "state/model/*"}) {
    CAPTURE(glob);
    const Folder folder;
    TrainerOptions options = options_in(folder.path());
    options.save_ignore_keys = {"rng", glob};
    Trainer trainer(std::move(options));
    const std::string said = error_of([&] { trainer.fit(); });
    CHECK(said.starts_with(join("save_ignore_keys: rng, ", glob, " leaves out all weights")));
    CHECK(trainer.state().timestamp.batch == 0);
  }
}

TEST_CASE("save_ignore_keys may leave out what cannot be saved, and a glob that fits nothing is told once") {
  const Folder folder;
  TrainerOptions options = options_in(folder.path());
  options.model->register_buffer("b", at::zeros({3}, at::kComplexDouble));
  options.save_ignore_keys = {"model/b", "nothing/*"};
  options.save_interval = "1ba";
  const Warnings warnings;
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(trainer.saved_checkpoints().size() == 4);
  CHECK(warnings.texts == std::vector<std::string>{"save_ignore_keys: nothing/* matches nothing in the checkpoint"});
}

TEST_CASE("The error of a folder that cannot be written says why in its own text") {
  const Folder folder;
  std::ofstream(folder / "ck") << "x";
  Trainer trainer(options_in(folder.path()));
  CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains("because: "), CheckpointError);
}

TEST_CASE("Under CONTINUE a folder that cannot be written is a warning, and save_checkpoint() is still an error") {
  const Folder folder;
  std::ofstream(folder / "ck") << "x";
  TrainerOptions options = options_in(folder.path());
  options.save_on_failure = saving::OnFailure::CONTINUE;
  Trainer trainer(std::move(options));
  const Warnings warnings;
  trainer.fit();
  CHECK(trainer.state().timestamp.batch == 4);
  CHECK(warnings.say("cannot write checkpoints there"));
  CHECK(trainer.saved_checkpoints().empty());
  CHECK_THROWS_AS(trainer.save_checkpoint("mine"), std::exception);
}

TEST_CASE("A checkpoint asked for by name is not counted, never deleted, and the periodic one is written as well") {
  const Folder folder;
  TrainerOptions options = options_in(folder.path());
  options.save_interval = "1ba";
  options.save_num_checkpoints_to_keep = 1;
  Trainer trainer(std::move(options));
  trainer.begin();
  REQUIRE(trainer.step());
  CHECK(trainer.save_checkpoint("mine") == (folder / "ck/mine").string());
  while (trainer.step()) {
  }
  trainer.end();
  const std::vector<std::string> saved = trainer.saved_checkpoints();
  REQUIRE(saved.size() == 2);
  CHECK(saved[0] == (folder / "ck/mine").string());
  CHECK(saved[1].ends_with("ba4"));
  for (const std::string& path : saved) CHECK(fs::exists(path));
  TrainerOptions again = options_in(folder.path());
  again.save_num_checkpoints_to_keep = 1;
  again.max_duration = "2ep";
  Trainer resumed(std::move(again));
  resumed.fit();
  CHECK(fs::exists(folder / "ck/mine"));
  CHECK(resumed.saved_checkpoints().size() == 2);
}

TEST_CASE("A checkpoint asked for under the name of the periodic ones stays when the periodic one replaces it") {
  const Folder folder;
  Trainer* trainer = nullptr;
  std::vector<std::string> asked;
  TrainerOptions options = options_in(folder.path());
  options.max_duration = "4ep";
  options.save_num_checkpoints_to_keep = 1;
  options.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::BATCH_CHECKPOINT && state.timestamp.batch_in_epoch == 4)
      asked.push_back(trainer->save_checkpoint("ep{epoch}-ba{batch}"));
    if (event == Event::EPOCH_CHECKPOINT && state.timestamp.epoch < 4) asked.push_back(trainer->save_checkpoint());
  })};
  Trainer made(std::move(options));
  trainer = &made;
  made.fit();
  REQUIRE(asked.size() == 7);
  for (const std::string& path : asked) CHECK(fs::exists(path));
}

TEST_CASE("A checkpoint that the run has saved by its interval is not replaced by one that is saved by its name") {
  const Folder folder;
  TrainerOptions options = options_in(folder.path());
  options.max_duration = "2ep";
  Trainer trainer(std::move(options));
  trainer.fit();
  const std::string id = saving::open_checkpoint(folder / "ck/ep1-ba4").manifest.id;
  CHECK_THROWS_WITH_AS(trainer.save_checkpoint("ep1-ba4"), doctest::Contains((folder / "ck/ep1-ba4").string().c_str()),
                       std::exception);
  CHECK(saving::open_checkpoint(folder / "ck/ep1-ba4").manifest.id == id);
  CHECK_NOTHROW(trainer.save_checkpoint("ep{epoch}-ba{batch}"));
  CHECK_NOTHROW(trainer.save_checkpoint("mine"));
  trainer.fit("1ep");
  CHECK_NOTHROW(trainer.save_checkpoint("mine"));
}

TEST_CASE("A run with save_best that ends before its first evaluation is saved, and the best are kept from there on") {
  const Folder folder;
  TrainerOptions options = options_in(folder.path());
  options.handle_signals = true;
  options.max_duration = "2ep";
  options.eval_dataloader = tiny_loader(8, 4);
  options.save_interval = "2ba";
  options.save_best = saving::Best{.metric = "eval/CrossEntropy", .better = Better::LOWER};
  options.save_num_checkpoints_to_keep = 2;
  options.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::BATCH_END && state.timestamp.batch == 3) std::raise(SIGTERM);
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(trainer.interrupted_by() == SIGTERM);
  REQUIRE(trainer.saved_checkpoints().size() == 2);
  CHECK(trainer.saved_checkpoints()[1].ends_with("ep0-ba3"));
  trainer.state().stop.clear();
  trainer.fit();
  CHECK(trainer.saved_checkpoints().size() == 2);
  CHECK_FALSE(fs::exists(folder / "ck/ep0-ba3"));  // a number is better than none
}

TEST_CASE(
    "save_best by a label that no loader has, or a name that its loader does not have, is told when the fit begins") {
  for (const char* metric : {"evil/CrossEntropy", "CrossEntropy", "eval/Nothing"}) {
    CAPTURE(metric);
    const Folder folder;
    TrainerOptions options = options_in(folder.path());
    options.eval_dataloader = tiny_loader(8, 4);
    options.save_best = saving::Best{.metric = metric};
    options.save_num_checkpoints_to_keep = 2;
    Trainer trainer(std::move(options));
    CHECK_THROWS_WITH(trainer.fit(), doctest::Contains("save_best"));
    CHECK(trainer.state().timestamp.batch == 0);
  }
}

TEST_CASE("A name that comes again and again, and that another run has taken, is refused when the fit begins") {
  for (const char* name : {"last", "b{batch_in_epoch}", "{run_name}/b{batch_in_epoch:04}"}) {
    CAPTURE(name);
    const Folder folder;
    const auto options = [&](bool resumes) {
      TrainerOptions options = options_in(folder.path());
      options.save_filename = name;
      options.max_duration = "2ep";
      options.autoresume = resumes;
      return options;
    };
    Trainer(options(false)).fit();
    CHECK_NOTHROW(Trainer(options(true)).fit());  // its own
    Trainer other(options(false));
    CHECK_THROWS_WITH_AS(other.fit(), doctest::Contains("was not written by this run"), ConfigError);
    CHECK(other.state().timestamp.batch == 0);
    TrainerOptions overwrites = options(false);
    overwrites.save_overwrite = true;
    CHECK_NOTHROW(Trainer(std::move(overwrites)).fit());
  }
}

TEST_CASE("A run whose only checkpoint is damaged neither begins anew nor overwrites it, also with save_overwrite") {
  for (const bool overwrite : {false, true}) {
    const Folder folder;
    Trainer(options_in(folder.path())).fit();
    const auto saved = saving::list_checkpoints(folder / "ck");
    REQUIRE(saved.size() == 1);
    std::ofstream(saved[0].path / "manifest.json", std::ios::app) << ' ';
    TrainerOptions options = options_in(folder.path());
    options.save_overwrite = overwrite;
    CHECK_THROWS_WITH_AS(Trainer(std::move(options)), doctest::Contains("autoresume"), CheckpointError);
  }
}

}  // namespace
}  // namespace composer::test::fit_start_test
