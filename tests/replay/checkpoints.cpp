// checkpoints.json: names, links and retention; what a second run goes on with; misuse.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <unistd.h>

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/checkpoint/name_format.h"
#include "composer/core/error.h"
#include "composer/data/in_memory.h"
#include "composer/models/classifier.h"
#include "tests/replay/errors.h"
#include "tests/replay/program.h"
#include "tests/replay/replay.h"

namespace composer::replay {
namespace {

namespace fs = std::filesystem;
namespace nn = torch::nn;

// A new folder to run in.
class Sandbox {
 public:
  Sandbox() {
    fs::create_directories(folder_);
    fs::current_path(folder_);
  }
  ~Sandbox() {
    fs::current_path(before_);
    fs::remove_all(folder_);
  }
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

 private:
  fs::path before_ = fs::current_path();
  fs::path folder_ = fs::temp_directory_path() / join("composer-replay-checkpoints-", getpid());
};

std::shared_ptr<Model> model_of(const Json& config) {
  at::manual_seed(3);
  const std::string name = config.value("model", "mlp");
  nn::Sequential net;
  if (name == "wide") {
    net = nn::Sequential(nn::Linear(4, 7), nn::Linear(7, 3));
  } else {
    const std::int64_t hidden = name == "mlp_other_shape" ? 6 : 5;
    net->push_back("fc1", nn::Linear(4, hidden));
    net->push_back("bn", nn::BatchNorm1d(hidden));
    net->push_back("relu", nn::ReLU());
    net->push_back("fc2", nn::Linear(hidden, 3));
  }
  return std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = 3});
}

TrainerOptions options_of(const Json& config) {
  Json plain = Json::object(), saving = Json::object();
  for (const auto& [name, value] : config.at("trainer").items())
    (name.starts_with("save_") || name.starts_with("load_") || name == "autoresume" ? saving : plain)[name] = value;
  if (config.contains("schedulers")) plain["schedulers"] = config["schedulers"];
  if (config.contains("savers")) throw Unsupported{"callback CheckpointSaver"};
  if (config.contains("algorithms"))
    throw Unsupported{"algorithm " + config["algorithms"][0]["class"].get<std::string>()};
  if (saving.contains("load_exclude_algorithms")) throw Unsupported{"argument load_exclude_algorithms"};

  TrainerOptions options = trainer_options(plain);
  options.model = model_of(config);
  options.run_name = "myrun";
  options.handle_signals = false;
  options.optimizer =
      config.contains("optimizer") ? optim::adam({.lr = 0.01}) : optim::sgd({.lr = 0.1, .momentum = 0.9});
  const at::Tensor x = at::sin(at::arange(40, at::kFloat)).view({10, 4});
  options.train_dataloader = data::in_memory({{"input", x}, {"target", at::arange(10, at::kLong).remainder(3)}},
                                             {.batch_size = 4, .shuffle = false});
  // Composer's defaults; ours have no rank and no ending.
  options.save_filename = saving.value("save_filename", "ep{epoch}-ba{batch}-rank{rank}.pt");
  const Json latest = saving.value("save_latest_filename", Json("latest-rank{rank}.pt"));
  options.save_latest_filename = latest.is_null() ? "" : latest.get<std::string>();
  options.save_folder = saving.value("save_folder", "");
  if (saving.contains("save_interval")) options.save_interval = interval_of(saving["save_interval"]);
  if (config.contains("save_interval_callable")) {
    Json callable = config["save_interval_callable"];
    callable["callable"] = "event_every";
    options.save_interval = interval_of(callable);
  }
  options.save_num_checkpoints_to_keep = saving.value("save_num_checkpoints_to_keep", -1);
  options.save_weights_only = saving.value("save_weights_only", false);
  options.save_overwrite = saving.value("save_overwrite", false);
  options.autoresume = saving.value("autoresume", false);
  options.load_path = saving.value("load_path", "");
  options.load_weights_only = saving.value("load_weights_only", false);
  options.load_strict_model_weights = saving.value("load_strict_model_weights", true);
  options.load_ignore_keys = saving.value("load_ignore_keys", std::vector<std::string>());
  return options;
}

// A checkpoint is a folder here and a file there.
Json listing() {
  Json all = Json::array();
  std::set<fs::path> paths;
  for (fs::recursive_directory_iterator it("."), end; it != end; ++it) {
    const bool checkpoint = it->is_directory() && fs::exists(it->path() / "manifest.json");
    if (it->is_symlink() || checkpoint) it.disable_recursion_pending();
    if (it->is_symlink() || checkpoint || it->is_regular_file()) paths.insert(it->path().lexically_normal());
  }
  for (const fs::path& path : paths) {
    if (fs::is_symlink(path))
      all.push_back({{"symlink", path.string()}, {"target", fs::read_symlink(path).string()}});
    else
      all.push_back({{"file", path.string()}});
  }
  return all;
}

Json sorted(Json list) {
  std::sort(list.begin(), list.end());
  return list;
}

// Runs it; {"error": ...} and what is left.
Json run_once(const Json& config, const Json& recorded, std::function<void(Trainer&)> loaded = {}) {
  Json got = {{"error", nullptr}, {"saved_checkpoints", Json::array()}};
  try {
    Trainer trainer(options_of(config));
    if (loaded) loaded(trainer);
    trainer.fit();
    got["saved_checkpoints"] = trainer.saved_checkpoints();
  } catch (const Unsupported&) {
    throw;
  } catch (const std::exception& error) {
    got["error"] = cause_result(error, recorded)["error"];
  }
  return got;
}

Rules rules() {
  const auto has = [](const char* text) {
    return [text](const Json& c) { return c.dump().find(text) != std::string::npos; };
  };
  return {
      {.name = "run_name_in_file_names",
       .applies_to = "`{run_name}` in `save_filename`",
       .composer_does = "KeyError at the start of the fit, unless `save_overwrite`",
       .we_do = "it is replaced",
       .why = "the documentation offers it",
       .matches =
           [](const Json& c) {
             return c["id"].is_string() && c.contains("config") && !c["error"].is_null() &&
                    c["config"]["trainer"].value("save_filename", "").find("{run_name}") != std::string::npos;
           },
       .ours =
           [](Json& expected, const Json&) {
             const std::string name = "myrun/x/r0-l0-w1-lw1-n0-e0-b1-s4-t0-be1-se4-te0-myrun.pt";
             const std::string second = "r0-l0-w1-lw1-n0-e0-b2-s8-t0-be2-se8-te0-myrun.pt";
             expected = {{"error", nullptr},
                         {"saved_checkpoints", {name, "myrun/x/" + second}},
                         {"listing", sorted({{{"file", name}},
                                             {{"file", "myrun/x/" + second}},
                                             {{"symlink", "myrun/x/newest-myrun-rank0"}, {"target", second}}})}};
           }},
      {.name = "another_optimizer_is_refused",
       .applies_to = "a checkpoint of a run with another class of optimizer",
       .composer_does = "a warning; the new optimizer begins anew",
       .we_do = "an error; `load_ignore_keys = {\"optimizer\"}` asks for a new beginning",
       .why = "a run that goes on without its momentum is another run, and nobody reads warnings of the first second",
       .matches = has("another optimizer class"),
       .ours =
           [](Json& expected, const Json&) {
             expected = {{"error", {{"type", "RuntimeError"}}}};
           }},
  };
}

Outcome run_files(const Json& c) {
  const Sandbox sandbox;
  for (const Json& file : c["files_before"]) {
    const fs::path path = file.get<std::string>();
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "not ours";
  }
  Json got = run_once(c["config"], c);
  got["listing"] = sorted(listing());
  Json recorded = {{"error", without_message(c)["error"]},
                   {"saved_checkpoints", c.value("saved_checkpoints", Json::array())},
                   {"listing", sorted(c["listing"])}};
  if (c.contains("second_config")) {
    recorded["second"] = {{"at", c["second_resumes_at"]}, {"listing", sorted(c["second_listing"])}};
    run_once(c["second_config"], c, [&](Trainer& trainer) {
      got["second"]["at"] = {{"epoch", trainer.state().timestamp.epoch}, {"batch", trainer.state().timestamp.batch}};
    });
    got["second"]["listing"] = sorted(listing());
  }
  return judge(c, recorded, got, rules());
}

Json counts(const Timestamp& t, const Json& wanted) {
  const Json all = {{"iteration", t.iteration},
                    {"epoch", t.epoch},
                    {"batch", t.batch},
                    {"sample", t.sample},
                    {"token", t.token},
                    {"batch_in_epoch", t.batch_in_epoch},
                    {"sample_in_epoch", t.sample_in_epoch},
                    {"token_in_epoch", t.token_in_epoch}};
  Json some;
  for (const auto& [name, value] : wanted.items())
    if (all.contains(name)) some[name] = all[name];
  return some;
}

at::Tensor all_weights(const Json& config) {
  Trainer trainer(options_of(config));
  trainer.fit();
  std::vector<at::Tensor> all;
  for (const at::Tensor& p : trainer.state().model->parameters()) all.push_back(p.detach().flatten());
  return at::cat(all);
}

Outcome run_resume(const Json& c) {
  const Sandbox sandbox;
  run_once(c["first"], c);
  Json recorded = {{"error", without_message(c)["error"]}}, got = {{"error", nullptr}};
  for (const char* part : {"after_load", "final"})
    if (c.contains(part)) recorded[part] = c[part];
  if (recorded.contains("final")) recorded["final"].erase("max_duration");
  if (c.contains("whole")) recorded["equal"] = c["final_weights_equal_uninterrupted_run"];
  try {
    Trainer trainer(options_of(c["second"]));
    if (c.contains("after_load")) got["after_load"] = counts(trainer.state().timestamp, c["after_load"]);
    trainer.fit();
    if (c.contains("final")) got["final"] = counts(trainer.state().timestamp, c["final"]);
    if (c.contains("whole")) {
      std::vector<at::Tensor> all;
      for (const at::Tensor& p : trainer.state().model->parameters()) all.push_back(p.detach().flatten());
      got["equal"] = at::cat(all).equal(all_weights(c["whole"]));
    }
  } catch (const Unsupported&) {
    throw;
  } catch (const std::exception& error) {
    got["error"] = cause_result(error, c)["error"];
  }
  return judge(c, recorded, got, rules());
}

Outcome run_names(const Json& c) {
  Json recorded = Json::array(), got = Json::array();
  for (const Json& row : c["rows"]) {
    Timestamp t;
    const Json& at = row["timestamp"];
    t.iteration = at["iteration"], t.epoch = at["epoch"], t.batch = at["batch"], t.sample = at["sample"];
    t.token = at["token"], t.batch_in_epoch = at["batch_in_epoch"], t.sample_in_epoch = at["sample_in_epoch"];
    t.token_in_epoch = at["token_in_epoch"];
    recorded.push_back(row["result"]);
    got.push_back(saving::format_name(row["format"].get<std::string>(), row["run_name"].get<std::string>(), &t));
  }
  return judge(c, recorded, got, rules());
}

Outcome run(const Json& c, const Context&) {
  try {
    if (c["kind"] == "files") return run_files(c);
    if (c["kind"] == "resume") return run_resume(c);
    if (c["kind"] == "format_name_with_dist_and_time") return run_names(c);
  } catch (const Unsupported& reason) {
    return unsupported(reason.why);
  }
  return unsupported("kind " + c["kind"].get<std::string>());
}

}  // namespace

Suite checkpoints_suite() { return {"checkpoints.json", "Checkpoints", run, rules()}; }

}  // namespace composer::replay
