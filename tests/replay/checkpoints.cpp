// checkpoints.json: names, links and retention; what a second run goes on with; what is in a checkpoint; misuse.
#include "tests/replay/checkpoints.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/callbacks/checkpoint_saver.h"
#include "composer/checkpoint/name_format.h"
#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/data/in_memory.h"
#include "composer/models/classifier.h"
#include "composer/net/remote_store.h"
#include "composer/util/counts.h"
#include "tests/replay/algorithms.h"
#include "tests/replay/errors.h"
#include "tests/replay/program.h"
#include "tests/replay/training_run.h"
#include "tests/support/sandbox.h"

namespace composer::replay {
namespace {

namespace fs = std::filesystem;
namespace nn = torch::nn;

std::shared_ptr<Model> model_of(const Json& config) {
  at::manual_seed(3);
  const std::string name = config.value("model", "mlp");
  nn::Sequential net;
  if (name == "wide") {
    net = nn::Sequential(nn::Linear(4, 7), nn::Linear(7, 3));
  } else if (name == "mlp" || name == "mlp_other_shape") {
    const std::int64_t hidden = name == "mlp_other_shape" ? 6 : 5;
    net->push_back("fc1", nn::Linear(4, hidden));
    net->push_back("bn", nn::BatchNorm1d(hidden));
    net->push_back("relu", nn::ReLU());
    net->push_back("fc2", nn::Linear(hidden, 3));
  } else {
    throw Unsupported{"model " + name};
  }
  return std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = 3});
}

// The first rows of the recorded data.
AnyDataSpec rows_of_toy(const Json& recorded, const Context& context) {
  require_known(recorded, "data", {"size", "batch_size", "drop_last", "tokens_per_sample"});
  const auto& toy = context.tensors("checkpoints");
  const std::int64_t size = recorded.at("size");
  DataSpec spec{.dataloader = data::in_memory(
                    {{"input", toy.at("toy.x").narrow(0, 0, size)}, {"target", toy.at("toy.y").narrow(0, 0, size)}},
                    {.batch_size = recorded.at("batch_size"),
                     .shuffle = false,
                     .drop_last = recorded.value("drop_last", false)})};
  if (const std::int64_t tokens = recorded.value("tokens_per_sample", 0); tokens > 0)
    spec.get_num_tokens_in_batch = [tokens](const Batch& batch) { return TokenCount(batch.front().size(0) * tokens); };
  return spec;
}

callbacks::CheckpointSaver saver_of(const Json& recorded) {
  require_known(recorded, "CheckpointSaver",
                {"folder", "filename", "latest_filename", "save_interval", "overwrite", "num_checkpoints_to_keep",
                 "weights_only", "ignore_keys"});
  callbacks::CheckpointSaverOptions options;
  options.folder = recorded.value("folder", options.folder);
  options.filename = recorded.value("filename", "ep{epoch}-ba{batch}-rank{rank}.pt");
  const Json latest = recorded.value("latest_filename", Json("latest-rank{rank}.pt"));
  options.latest_filename = latest.is_null() ? "" : latest.get<std::string>();
  if (recorded.contains("save_interval")) options.save_interval = interval_of(recorded["save_interval"]);
  options.overwrite = recorded.value("overwrite", options.overwrite);
  options.num_checkpoints_to_keep = recorded.value("num_checkpoints_to_keep", options.num_checkpoints_to_keep);
  options.weights_only = recorded.value("weights_only", options.weights_only);
  options.ignore_keys = recorded.value("ignore_keys", options.ignore_keys);
  return callbacks::CheckpointSaver(options);
}

// What the trainer has saved, or else the first who did, below the working directory, as recorded.
std::vector<std::string> saved_by(Trainer& trainer) {
  std::vector<std::string> paths = trainer.saved_checkpoints();
  for (const auto& plugin : trainer.engine().callbacks())
    if (const auto* saver = dynamic_cast<callbacks::CheckpointSaver*>(plugin.object.get()); saver && paths.empty())
      paths = saver->saved_checkpoints();
  const std::string here = std::filesystem::current_path().string() + '/';
  for (std::string& path : paths)
    if (path.starts_with(here)) path.erase(0, here.size());
  return paths;
}

}  // namespace

TrainerOptions checkpoint_options(const Json& config, const Context& context) {
  require_known(config, "configuration",
                {"trainer", "save_interval_callable", "savers", "optimizer", "schedulers", "algorithms", "model",
                 "train", "eval"});
  static const Json no_choices = Json::array();
  static RandomLog random(no_choices);
  Algorithms algorithms = make_training_algorithms(config, random);
  for (const Json& one : config.value("algorithms", Json::array()))
    if (is_surgery(one)) algorithms.add(make_algorithm(one.at("class"), settings_of(one)));
  Json arguments = config.value("trainer", Json::object());
  if (config.contains("schedulers")) arguments["schedulers"] = config["schedulers"];
  TrainerOptions options = trainer_options(arguments);
  for (const Json& saver : config.value("savers", Json::array())) options.callbacks.add(saver_of(saver));
  options.algorithms = std::move(algorithms);
  options.model = model_of(config);
  options.run_name = "myrun";
  options.handle_signals = false;
  options.optimizer = optim::sgd({.lr = 0.1, .momentum = 0.9});
  if (config.contains("optimizer"))
    options.optimizer = make_optimizer(config["optimizer"], optim::parameters_of(*options.model));
  options.train_dataloader = rows_of_toy(config.value("train", Json{{"size", 10}, {"batch_size", 4}}), context);
  if (config.contains("eval")) options.eval_dataloader = rows_of_toy(config["eval"], context);
  if (config.contains("save_interval_callable")) {
    Json callable = config["save_interval_callable"];
    callable["callable"] = "event_every";
    options.save_interval = interval_of(callable);
  }
  return options;
}

Json run_once(const Json& config, const Context& context, const Json& recorded,
              const std::function<void(Trainer&)>& loaded) {
  Json got = {{"error", nullptr}, {"saved_checkpoints", Json::array()}};
  try {
    Trainer trainer(checkpoint_options(config, context));
    if (loaded) loaded(trainer);
    trainer.fit();
    got["saved_checkpoints"] = saved_by(trainer);
  } catch (const std::exception& error) {
    got["error"] = cause_result(error, recorded)["error"];
  }
  return got;
}

namespace {

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

// What is left of a run, and what it says it has saved.
Json files_of(const Json& config, const Json& c, const Context& context) {
  Json got = run_once(config, context, c);
  got["listing"] = sorted(listing());
  return got;
}

// Whether a format has a placeholder that Composer replaces, but does not expect when it looks for conflicting files.
bool surprises_composer(const std::string& format) {
  static const std::regex surprising(R"(\{(run_name|\w+_wct|\w+:[^{}]*)\})");
  return std::regex_search(format, surprising);
}

Rule surprising_file_names(const Context* context) {
  return {.name = "run_name_in_file_names",
          .applies_to =
              "`{run_name}`, `{total_wct}` and its like, and format specs such as `{epoch:03d}` in "
              "`save_filename`",
          .composer_does = "KeyError or ValueError at the start of the fit, unless `save_overwrite`",
          .we_do = "they are replaced, as with `save_overwrite`",
          .why = "the documentation offers them",
          .matches =
              [](const Json& c) {
                return !c["error"].is_null() && surprises_composer(c["config"]["trainer"].value("save_filename", ""));
              },
          .ours =
              [context](Json& expected, const Json& c) {
                const test::Sandbox another;
                Json overwriting = c["config"];
                overwriting["trainer"]["save_overwrite"] = true;
                expected = files_of(overwriting, c, *context);
              }};
}

// Of the files that the first run left, a resumed run deletes the oldest while there are more than it may keep.
void count_whole_run(Json& expected, const Json& c) {
  if (!expected.contains("second")) return;
  std::set<std::string> before, added;
  for (const Json& entry : c["listing"]) before.insert(entry.value("file", ""));
  for (const Json& entry : expected["second"]["listing"])
    if (entry.contains("file") && !before.contains(entry["file"])) added.insert(entry["file"]);
  const auto keep = c["second_config"]["trainer"].at("save_num_checkpoints_to_keep").get<std::size_t>();
  const std::size_t room = keep - std::min(keep, added.size());
  const Json& saved = c["saved_checkpoints"];
  for (std::size_t i = 0; !added.empty() && i + room < saved.size(); ++i) {
    Json& listing = expected["second"]["listing"];
    listing.erase(std::remove(listing.begin(), listing.end(), Json{{"file", saved[i]}}), listing.end());
  }
}

Rule retention_of_whole_run() {
  return {.name = "retention_counts_the_whole_run",
          .applies_to = "`save_num_checkpoints_to_keep` in a resumed run",
          .composer_does = "counts the checkpoints saved since the resume; older ones stay",
          .we_do = "counts all checkpoints of the run",
          .why = "a run that is resumed often would fill the disk",
          .matches =
              [](const Json& c) {
                return c.contains("second_config") &&
                       c["second_config"]["trainer"].value("save_num_checkpoints_to_keep", -1) > 0;
              },
          .ours = count_whole_run};
}

// Without a context: to be listed only.
Rules files_rules(const Context* context) { return {surprising_file_names(context), retention_of_whole_run()}; }

Outcome run_files(const Json& c, const Context& context) {
  const test::Sandbox sandbox;
  for (const Json& file : c["files_before"]) {
    const fs::path path = file.get<std::string>();
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "not ours";
  }
  Json got = files_of(c["config"], c, context);
  Json recorded = {{"error", without_message(c)["error"]},
                   {"saved_checkpoints", c.value("saved_checkpoints", Json::array())},
                   {"listing", sorted(c["listing"])}};
  if (c.contains("second_config")) {
    recorded["second"] = {{"at", c["second_resumes_at"]}, {"listing", sorted(c["second_listing"])}};
    run_once(c["second_config"], context, c, [&](Trainer& trainer) {
      got["second"]["at"] = {{"epoch", trainer.state().timestamp.epoch}, {"batch", trainer.state().timestamp.batch}};
    });
    got["second"]["listing"] = sorted(listing());
  }
  return judge(c, recorded, got, files_rules(&context));
}

Outcome run_names(const Json& c) {
  return judge_rows(c, {}, [](const Json& row) -> RecordedAndGot {
    Timestamp t;
    for (const util::Count& count : util::kCounts)
      if (row["timestamp"].contains(count.name)) t.*count.field = row["timestamp"][count.name];
    return {row["result"],
            saving::format_name(row["format"].get<std::string>(), row["run_name"].get<std::string>(), &t)};
  });
}

// Backend, bucket and path.
Json parts_of(const std::string& uri) {
  if (!net::is_uri(uri)) return {"", "", uri};
  try {
    std::string opened = net::open_store(uri)->uri();
    std::smatch parts;
    if (std::regex_match(opened, parts, std::regex("([a-z0-9]+)://([^/]*)/?(.*?)/?")))
      return {parts[1].str(), parts[2].str(), parts[3].str()};
    return opened;
  } catch (const ConfigError&) {
    return "error";
  }
}

Rules uri_rules() {
  return {{.name = "remote_stores_are_s3_http_and_file",
           .applies_to = "`gs://`, `oci://`, `dbfs:/` and the like",
           .composer_does = "has a client for each of these stores",
           .we_do = "`s3://`, `http(s)://` and `file://`; another URI is an error, and what has no `://` is a path",
           .why = "S3's protocol is what most stores speak, Google's too",
           .matches = [](const Json& c) { return c["kind"] == "parse_uri"; },
           .ours =
               [](Json& expected, const Json&) {
                 for (Json& row : expected) {
                   const std::string uri = row["uri"];
                   const auto backend = row["result"][0].get<std::string>();
                   if (backend.empty() || backend == "s3") continue;
                   row["result"] = uri.find("://") == std::string::npos ? Json{"", "", uri} : Json("error");
                 }
               }}};
}

Outcome run_parse_uri(const Json& c) {
  for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}) ::setenv(name, "unused", /*overwrite=*/0);
  Json got = Json::array();
  for (const Json& row : c["rows"]) got.push_back({{"uri", row["uri"]}, {"result", parts_of(row["uri"])}});
  return judge(c, c["rows"], got, uri_rules());
}

Outcome run_checkpoints(const Json& c, const Context& context) {
  const std::string kind = c["kind"];
  if (kind == "files") return run_files(c, context);
  if (kind == "resume") return run_resume(c, context);
  if (kind == "keys") return run_keys(c, context);
  if (kind == "misuse") return run_misuse(c, context);
  if (kind == "format_name_with_dist_and_time") return run_names(c);
  if (kind == "parse_uri") return run_parse_uri(c);
  return unsupported("kind " + kind);
}

Rules checkpoints_rules() {
  Rules all = files_rules(nullptr);
  for (const Rules& more : {resume_rules(), keys_rules(), misuse_rules(), uri_rules()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

Suite checkpoints_suite() { return {"checkpoints.json", "Checkpoints", run_checkpoints, checkpoints_rules()}; }

}  // namespace composer::replay
