// When checkpoints are written, and which one is loaded.
#include "composer/remote/checkpoints.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/ignore_keys.h"
#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/scratch.h"
#include "composer/core/error.h"
#include "composer/formats/renaming.h"
#include "composer/formats/weights.h"
#include "composer/net/remote_store.h"
#include "composer/step/handed_out.h"
#include "composer/trainer/impl.h"
#include "composer/trainer/resume_with.h"
#include "composer/trainer/shared_files.h"
#include "composer/trainer/trainer_options.h"

namespace composer {
namespace {

// The newest that is older than `found`.
std::optional<saving::Found> one_before(const saving::Found& found, const std::string& folder) {
  std::optional<saving::Found> before;
  for (saving::Found& other : saving::list_checkpoints(folder)) {
    if (!saving::is_older(other.manifest, found.manifest)) break;
    if (can_go_on(other.manifest, found.manifest.run_name) && other.manifest.run_id == found.manifest.run_id)
      before = std::move(other);
  }
  return before;
}

// The same, of a save_folder that is a URI, where this machine may have no other. Downloaded.
std::optional<saving::Found> one_before_in_store(const saving::Found& found, const std::string& uri,
                                                 const std::string& folder) {
  const saving::Manifest& damaged = found.manifest;
  const auto store = net::open_store(uri);
  try {
    const auto find = [&] {
      return find_newest(*store, [&](const saving::Manifest& other) {
        return can_go_on(other, damaged.run_name) && other.run_id == damaged.run_id && saving::is_older(other, damaged);
      });
    };
    if (const auto newest = find()) return saving::open_checkpoint(download_unreplaced(*store, *newest, find, folder));
  } catch (const CheckpointError&) {  // NOLINT(bugprone-empty-catch): the damage it was asked for is told
  }
  return std::nullopt;
}

bool is_at(const Timestamp& a, const Timestamp& b) {
  return a.batch == b.batch && saving::ends_of(a) == saving::ends_of(b);
}

// Whether that checkpoint was written at this moment of this fit.
bool is_of(const std::string& path, std::int64_t fit, const Timestamp& time) {
  try {
    const saving::Manifest there = saving::open_checkpoint(path).manifest;
    return there.fit == fit && is_at(there.time, time);
  } catch (const CheckpointError&) {
    return false;
  }
}

constexpr const char* kWhereToSave =
    "call it at batch_checkpoint, epoch_checkpoint or iteration_checkpoint, which come after the evaluation, or "
    "between "
    "two steps";

StateDict load_for(const Ranks& ranks, const saving::Found& found) {
  return saving::load(found, ranks.rank(), ranks.size());
}

struct Loaded {
  StateDict state;
  std::string path;
  bool weights_only = false;
};

// Of a checkpoint, or of a file of weights as Python and save_weights() write them.
Loaded read_checkpoint(const Ranks& ranks, const std::filesystem::path& path, bool weights_only);

// Of a URI, whose files are kept until they are read.
Loaded read_remote(const Ranks& ranks, const std::string& uri, bool weights_only) {
  const saving::Scratch folder(std::filesystem::temp_directory_path(), kLoadPrefix);
  Loaded loaded = read_checkpoint(ranks, download_from(uri, folder.path() / "files"), weights_only);
  loaded.path = net::shown_url(uri);
  return loaded;
}

// As rank 0 has it. Another rank that sees other files gets copies of rank 0's while it reads.
Loaded read_for_all(const Ranks& ranks, const std::string& given, bool weights_only) {
  if (ranks.alone())
    return net::is_uri(given) ? read_remote(ranks, given, weights_only) : read_checkpoint(ranks, given, weights_only);
  std::optional<saving::Scratch> downloaded;
  const std::string path = ranks.same(ranks.together([&]() -> std::string {
    if (!ranks.first() || !net::is_uri(given)) return given;
    downloaded.emplace(std::filesystem::temp_directory_path(), kLoadPrefix);
    return download_from(given, downloaded->path() / "files").string();
  }));
  Loaded loaded;
  ranks.together([&] {
    if (ranks.first())
      loaded = read_checkpoint(ranks, path, weights_only);  // its errors are everybody's, before anything is sent
  });
  const SharedFiles files(*ranks.world(), path);
  ranks.together([&] {
    if (!ranks.first()) loaded = read_checkpoint(ranks, files.path(), weights_only);
  });
  loaded.path = net::is_uri(given) ? net::shown_url(given) : ranks.same(loaded.path);
  return loaded;
}

// With its placeholders replaced. Those of a URL may be in its path alone, so that messages show no secrets.
std::string expanded(const std::string& path, const std::string& run_name) {
  if (!path.starts_with("http://") && !path.starts_with("https://")) return saving::format_name(path, run_name);
  const std::size_t end = std::min(path.find_first_of("?#"), path.size());
  const std::size_t begin = std::min(path.find('/', path.find("://") + 3), end);
  const std::string names = path.substr(begin, end - begin);
  if (names.find_first_of("{}") == std::string::npos) return path;
  return path.substr(0, begin) + saving::format_name(names, run_name) + path.substr(end);
}

Loaded read_checkpoint(const Ranks& ranks, const std::filesystem::path& path, bool weights_only) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    const saving::Found found = saving::open_checkpoint(path);
    return {load_for(ranks, found), found.path.string(), weights_only || found.manifest.weights_only};
  }
  StateDict weights, all;
  for (auto& [name, tensor] : read_weights(path)) weights[name] = std::move(tensor);  // damage is told first
  if (weights.entries().empty()) throw CheckpointError(path.string(), ": has no tensors, so no weights can be loaded");
  if (!weights_only)
    throw ConfigError("load_path: ", path.string(), " is a file, and may have weights alone; set load_weights_only, ",
                      "or name the folder of a checkpoint");
  all["model"] = std::move(weights);
  return {std::move(all), path.string(), true};
}

// Where load_weights() speaks of its own options.
const std::string kOptionsOfTrainers =
    "\nA trainer has load_rename for rename; for ignore it has load_ignore_keys, such as {\"model/module.fc.*\"}, with "
    "load_strict_model_weights = false; for convert, `composer convert FILE OUT --dtype f32` writes weights of that "
    "dtype.";

// Evaluations of that run were of these, not of the weights that are loaded.
void warn_of_averages(const StateDict& saved, const std::string& from) {
  HandedOut handed_out;
  try {
    handed_out = HandedOut::in(saved);
  } catch (const CheckpointError& error) {
    throw CheckpointError(from, ": ", error.what());
  }
  if (handed_out.by.empty()) return;
  warn(join(from, ": its trained weights are loaded, and not the averages of ", handed_out.by,
            ", which evaluations of that run use. Load it whole, with the same algorithm",
            handed_out.at.empty() ? "" : ", or load the file that composer convert --averages writes"));
}

void rename_weights(StateDict& state, const std::vector<Rename>& rules, bool warns) {
  if (rules.empty() || !state.find("model")) return;
  Renaming rename(rules);
  StateDict renamed;
  for (auto& [name, tensor] : std::get<StateDict>(state["model"]).entries()) {
    const std::string to = rename(name);
    if (renamed.find(to)) throw ConfigError("load_rename: two weights get the name ", to);
    renamed[to] = std::move(tensor);
  }
  state["model"] = std::move(renamed);
  if (warns) rename.warn_of_idle("load_rename");
}

}  // namespace

std::optional<saving::Found> checkpoint_to_resume(const TrainerOptions& options) {
  if (options.save_folder.empty() || !options.autoresume || options.save_weights_only) return std::nullopt;
  if (!options.resume_with.empty()) return newest_in_common(options);
  const std::string given = saving::format_name(options.save_folder, options.run_name);
  const std::string folder = local_save_folder(given, options.save_staging_folder);
  const auto fits = [&](const saving::Manifest& manifest) { return can_go_on(manifest, options.run_name); };
  const auto find = [&] {
    return saving::find_latest(folder, saving::format_name(options.save_latest_filename, options.run_name), fits);
  };
  std::optional<saving::Found> found = find();
  if (folder == given) return found;
  // Another machine may have trained on since, or this one may never have seen the run.
  const auto store = net::open_store(given);
  const auto newest = find_newest(*store, fits);
  if (!newest || (found && !saving::is_older(found->manifest, newest->manifest))) return found;
  std::uint64_t bytes = 0;
  for (const auto& file : newest->manifest.files) bytes += file.size;
  warn(join("save_folder: downloading ", store->uri_of(newest->name()), ", ", bytes, " bytes, to ", folder));
  const auto again = [&] { return find_newest(*store, fits); };
  return saving::open_checkpoint(download_unreplaced(*store, *newest, again, folder));
}

// Nothing is written yet.
std::unique_ptr<saving::RunSaver> Trainer::Impl::make_saver() {
  if (options.save_folder.empty() || !ranks.first()) return nullptr;
  const std::string given = saving::format_name(options.save_folder, state.run_name);
  const std::string folder = local_save_folder(given, options.save_staging_folder);
  if (!net::is_uri(given)) together = std::make_shared<ResumesTogether>(options, state.run_name, resumption.found);
  std::shared_ptr<saving::Mirror> mirror;
  std::string begins_again;
  if (!options.resume_with.empty()) {
    program = resumption.found ? std::make_shared<const std::string>(resumption.found->manifest.program)
                               : program_of_trainers();
    begins_again = resumption.found ? "" : run_to_begin_again(folder, options.run_name);
    resumption.begins_again = !begins_again.empty();
  }
  if (options.save_num_checkpoints_to_keep == 0)
    warn(join("save_num_checkpoints_to_keep: is 0, so save_folder, ", given, ", gets no checkpoint but those of ",
              "save_checkpoint(); -1 keeps all"));
  if (folder != given)
    mirror = make_remote_mirror({.uri = given,
                                 .run_name = state.run_name,
                                 .overwrite = options.save_overwrite,
                                 .on_failure = options.save_on_failure,
                                 .longest_wait = options.save_upload_timeout});
  saving::RunSaverOptions chosen = save_options_of(options);
  if (mirror) chosen.folder = folder;
  return std::make_unique<saving::RunSaver>(std::move(chosen),
                                            saving::SaverOwner{.goes_back = !options.resume_with.empty(),
                                                               .mirror = std::move(mirror),
                                                               .program = program ? *program : "",
                                                               .begins_again = std::move(begins_again)},
                                            state, resumption.found ? &resumption.found->manifest : nullptr);
}

// A damaged checkpoint of our own is not the end of the run, there are those before it.
StateDict Trainer::Impl::read_resumed() {
  std::optional<saving::Found>& found = resumption.found;
  for (;;) try {
      return load_for(ranks, *found);
    } catch (const CheckpointError& damaged) {
      if (!options.resume_with.empty()) throw;  // the others would not go back with it
      const std::string given = saving::format_name(options.save_folder, state.run_name);
      const std::string folder = local_save_folder(given, options.save_staging_folder);
      std::optional<saving::Found> before = one_before(*found, folder);
      if (!before && folder != given) before = one_before_in_store(*found, given, folder);
      if (!before) throw;
      warn(join("checkpoint: ", describe(damaged), "; going back to ", before->path.string()));
      found = std::move(before);
    }
}

StateDict Trainer::Impl::read_resumed_together() {
  if (ranks.alone()) return read_resumed();
  StateDict saved = ranks.together([&] { return ranks.first() ? read_resumed() : StateDict(); });
  const SharedFiles files(*ranks.world(), resumption.found->path);
  const std::string path = ranks.same(resumption.found->path.string());  // rank 0 may have gone back to another
  const std::string manifest = ranks.same(resumption.found->manifest.to_json());
  return ranks.together([&] {
    if (ranks.first()) return std::move(saved);
    resumption.found = saving::Found{path, saving::Manifest::parse(manifest, path)};
    return load_for(ranks, saving::open_checkpoint(files.path()));
  });
}

// Its momentum is part of how the run would have gone on. Who ignores it when loading knows.
void Trainer::Impl::warn_of_missing_optimizer(const StateDict& saved, const std::string& from) const {
  if (ranks.first() && state.optimizer && !saved.find("optimizer"))
    warn(join(from, ": has no optimizer, so that one begins anew"));
}

void Trainer::Impl::load_checkpoint() {
  if (resumption.found) {
    const StateDict saved = read_resumed_together();
    const std::string path = resumption.found->path.string();
    warn_of_missing_optimizer(saved, path);
    check_run_state(saved, path);
    load_weights(saved, path, /*strict=*/options.load_strict_model_weights);
    load_run_state(saved, path);
    resumption.loaded_from = path;
  } else if (!options.load_path.empty()) {
    load({.path = options.load_path,
          .weights_only = options.load_weights_only,
          .strict_model_weights = options.load_strict_model_weights,
          .ignore_keys = options.load_ignore_keys},
         options.load_rename);
  }
}

void Trainer::Impl::load(const LoadOptions& from, const std::vector<Rename>& rename) {
  if (!rename.empty() && !from.weights_only)
    throw ConfigError("load_rename: changes names of weights alone; set load_weights_only");
  const std::string path = expanded(from.path, state.run_name);
  Loaded loaded = read_for_all(ranks, path, from.weights_only);
  rename_weights(loaded.state, rename, ranks.first());
  if (!loaded.weights_only) warn_of_missing_optimizer(loaded.state, loaded.path);
  if (loaded.weights_only && ranks.first()) warn_of_averages(loaded.state, loaded.path);
  saving::ignore_keys(loaded.state, from.ignore_keys);
  if (!loaded.weights_only) check_run_state(loaded.state, loaded.path);
  // Ignored weights may be missing in a resumed run; weights alone are loaded as strictly as was asked for.
  const bool strict = from.strict_model_weights && (from.weights_only || from.ignore_keys.empty());
  weights_in_use.with_trained([&] {
    try {
      load_weights(loaded.state, loaded.path, strict);
    } catch (const WeightsError& error) {
      if (from.weights_only) throw WeightsError(error.what() + kOptionsOfTrainers, error.report);
      throw;
    }
    if (!loaded.weights_only) load_run_state(loaded.state, loaded.path);
  });
  if (options.seed && state.seed != *options.seed)
    warn(join("load_path: the run goes on with the seed of ", loaded.path, ", ", state.seed,
              ", and not with .seed = ", *options.seed, "; set load_weights_only to begin a run of its own"));
  resumption.loaded_from = loaded.path;
}

void Trainer::Impl::require_own_weights(const char* call) const {
  if (const std::string* algorithm = engine.open_algorithm())
    throw ConfigError(call, ": at ", to_string(last_event), ' ', *algorithm, " may have exchanged the weights; ",
                      kWhereToSave);
}

// Where all that follows a batch, an epoch or an iteration is done.
void Trainer::Impl::require_exact_place(const char* call) const {
  const Event at = last_of_training;
  const bool is_exact = at == Event::FIT_START || at == Event::BATCH_CHECKPOINT || at == Event::EPOCH_CHECKPOINT ||
                        at == Event::ITERATION_CHECKPOINT || at == Event::FIT_END;
  if (busy && fit && !is_exact)
    throw ConfigError(call, ": a run cannot go on exactly from ", to_string(last_event), "; ", kWhereToSave);
}

// As long as nothing new is trained, the program repeats what it did before: what the run has under that name keeps its
// weights. Once a fit goes on, that is what was saved at this moment: the program had not come to a later call.
std::string Trainer::Impl::made_before(const std::string& name) const {
  const bool goes_on = !resumption.found;
  if (goes_on && !(resumption.went_on && is_at(*resumption.went_on, state.timestamp))) return {};
  const std::string path = ranks.same(ranks.together([&] {
    std::string found = saver ? saver->made_before(name, state) : "";
    return goes_on && !found.empty() && !is_of(found, fits.place->number, state.timestamp) ? "" : found;
  }));
  if (!path.empty() && ranks.first())
    warn(join("save_checkpoint: ", path, " stays as the run has saved it before ", resumption.loaded_from,
              ", because a program that is started again repeats its calls until it trains on; to save what there is ",
              "now, give it another name"));
  return path;
}

std::string Trainer::Impl::save_by_hand(const std::string& name) {
  if (!ranks.any(!options.save_folder.empty()))
    throw ConfigError("save_checkpoint: there is no save_folder to write it to");
  if (finding_lr) throw ConfigError("save_checkpoint: inside of find_lr(), whose steps are undone");
  require_own_weights("save_checkpoint");
  require_exact_place("save_checkpoint");
  ranks.together([&] {
    if (saver) saver->check_name_by_hand(name, state);
  });
  return located([&] {
    const std::string path = made_before(name);
    return path.empty() ? write_by_hand(name) : path;
  });
}

namespace {

// The checkpoint as the user named its folder, which may be a URI.
std::string shown_checkpoint(const std::string& path, const TrainerOptions& options, const std::string& run_name) {
  const std::string given = saving::format_name(options.save_folder, run_name);
  const std::string folder = local_save_folder(given, options.save_staging_folder);
  return folder == given ? path : given + "/" + std::filesystem::relative(path, folder).string();
}

std::string position(const Timestamp& now) { return join("epoch ", now.epoch, ", batch ", now.batch); }

}  // namespace

void Trainer::Impl::tell_resumed() {
  if (!resumption.found || !ranks.first()) return;
  Progress progress = this->progress();
  if (progress.epoch_is_complete()) progress.now = progress.now.to_next_epoch();  // that is all that is left to do
  const std::string from =
      join(shown_checkpoint(resumption.loaded_from, options, state.run_name), " (", position(state.timestamp), ')');
  if (const std::string finished = resumption.finished(); !finished.empty())
    warn(join("this run is complete: ", from, " was saved after a stop: ", finished,
              "; to train on, change the options of who has decided that, or call fit() a second time"));
  else if (progress.limit_reached())
    warn(join("this ", fits.place->number == 0 ? "run" : "fit", " is complete: ", from, " has reached max_duration, ",
              *state.max_duration));
  else
    warn(join("resumed from ", from));
}

// At the end of a fit, in case that nobody saw the warning hours ago.
void Trainer::Impl::tell_nan() const {
  if (const auto since = train_step.nan_since(); since && ranks.first())
    warn(join("the training loss has been NaN since batch ", *since, state.device.is_cpu() ? "" : " or before",
              ", up to the end of this fit at batch ", state.timestamp.batch,
              ": nothing was learnt from there on. The callback NaNMonitor ends a run at the first ",
              "NaN, and says where it comes from"));
}

void Trainer::Impl::tell_interrupted() {
  if (!interrupted() || !run_link || !ranks.first()) return;  // a trial says nothing
  std::string text = join("interrupted (", fit->ending.signal() == SIGINT ? "SIGINT" : "SIGTERM", ") after batch ",
                          state.timestamp.batch);
  if (!saver)
    text += "; nothing is saved, because there is no save_folder";
  else if (saver->newest().empty())
    text += "; nothing is saved, because of save_interval";
  else if (const std::string newest = saver->options().folder / saver->newest();
           saver->last_saved_batch() == state.timestamp.batch)
    text +=
        join("; saved to ", newest, options.save_weights_only || !options.autoresume ? "" : "; start again to resume");
  else
    text += join("; what came after ", newest, " is not saved, because of save_interval");
  if (saver && net::is_uri(options.save_folder)) {
    const auto left = state.run->time_left();
    text += "; waiting for uploads to " + saving::format_name(options.save_folder, state.run_name);
    if (left) text += join(", up to ", std::lround(std::max(0.0, left->count())), " s");
    text += "; another signal ends the process, and the next start uploads what is missing";
  }
  warn(text);
}

std::string Trainer::save_checkpoint(const std::string& name) { return impl().save_by_hand(name); }

std::vector<std::string> Trainer::saved_checkpoints() const {
  return impl().saver ? impl().saver->paths() : impl().saved_by_rank_0.all;
}

std::optional<std::string> Trainer::best_checkpoint() const {
  return impl().saver ? impl().saver->best_path(impl().state) : impl().saved_by_rank_0.best;
}

const std::string& Trainer::resumed_from() const { return impl().resumption.loaded_from; }

}  // namespace composer
