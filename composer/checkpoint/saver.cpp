#include "composer/checkpoint/saver.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <utility>

#include "composer/checkpoint/parts.h"
#include "composer/checkpoint/state_file.h"
#include "composer/core/error.h"

namespace composer::saving {
namespace {

constexpr const char* kModel = "model";

}  // namespace

Saver::Saver(SaverOptions options, std::shared_ptr<FileSystem> files)
    : list_(options.keep, options.best), writer_(std::move(options), std::move(files)) {
  saving::check(this->options(), this->options().names);
}

void check(const SaverOptions& options, OptionNames names) {
  const auto& [owner, prefix] = names;
  if (!options.best) return;
  if (options.keep == 0)
    throw ConfigError(owner, prefix, "best: needs ", prefix, "num_checkpoints_to_keep >= 1, or -1 for all, got ",
                      options.keep);
  if (options.latest == Best::kLink)
    throw ConfigError(owner, prefix, "latest_filename: ", options.latest, " is the name of the link that ", prefix,
                      "best makes; set another one");
}

void Saver::rethrow_error() {
  if (writer_.has_ended()) wait();
}

void Saver::wait() {
  CheckpointWriter::Result result = writer_.wait();
  list_.settle(result.outcome, std::move(result.undeleted));
  writer_.rethrow();
}

// With a mirror, a checkpoint may exist only there. Errors of the disk are reported by the write.
bool Saver::is_gone(const std::string& name) const {
  try {
    return !options().mirror && writer_.files().type(options().folder / name) == FileSystem::Type::NONE;
  } catch (const FileError&) {
    return false;
  }
}

void Saver::choose_name(Manifest& manifest, const Planned& planned) {
  wait();
  list_.drop_plan();
  const auto is_free = [this](const std::string& name) {
    const std::filesystem::path path = options().folder / name;
    try {
      return writer_.files().type(path) == FileSystem::Type::NONE || is_of_run(path, options().run_id, writer_.files());
    } catch (const FileError&) {
      return true;
    }
  };
  auto [name, value] = list_.choose_name(
      manifest, planned, {.is_gone = [this](const std::string& there) { return is_gone(there); }, .is_free = is_free});
  manifest.name = std::move(name);
  if (value) manifest.metrics.emplace(options().best->metric, *value);
}

void Saver::plan(const Manifest& manifest, const Planned& planned) {
  if (options().keep == 0 && !planned.by_hand) return;
  wait();
  list_.plan(manifest, planned);
}

std::string Saver::open_parts(int ranks) {
  wait();
  return writer_.open_parts(ranks);
}

void Saver::save(Manifest manifest, const StateDict& state) {
  wait();
  manifest.id = writer_.next_id();
  manifest.run_id = options().run_id;
  if (std::optional<SavedList::Sent> sent = list_.send(manifest))
    writer_.write(std::move(manifest), *std::move(sent), state);
  else
    writer_.drop_parts();
}

void Saver::write_notes() {
  wait();
  writer_.note(list_.take_notes());
}

void Saver::link_best() {
  if (const Saved* const best = list_.best()) writer_.link_best(best->name);
}

void Saver::clean_up() {
  wait();
  list_.drop_plan();  // the checkpoints that it would replace are not to be deleted
  const Saved* const best = list_.best();
  list_.set_retired(writer_.clean_up(list_.retired(), best ? best->name : ""));
}

void Saver::check_writable(Manifest manifest, const StateDict& state) const {
  manifest.parent = list_.parent();
  writer_.check_writable(std::move(manifest), state);
}

void Saver::visit_state(StateVisitor& visit, std::uint64_t weights, std::int64_t batch) {
  if (!visit.is_loading())
    return list_.visit_state(visit, weights, batch,
                             options().mirror ? options().mirror->undeleted() : std::vector<std::string>());
  wait();
  list_.visit_state(visit, weights, batch, {});
  for (const std::string& name : list_.names())
    if (is_gone(name) && is_gone(name + kSpare)) list_.drop(name);
  if (!options().best) return;
  for (const std::string& name : list_.names()) try {
      const Manifest there = open_checkpoint(options().folder / name, writer_.files()).manifest;
      if (there.run_id == options().run_id) list_.compare(name, there);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): then it has no value but that of the list
    }
}

std::vector<Manifest> Saver::adopt_unlisted(std::int64_t batch) {
  std::vector<Manifest> unlisted;
  const std::vector<std::string> retired = list_.retired();
  for (Found& found : checkpoints_of_saver(options().folder, writer_.files())) {
    const Manifest& one = found.manifest;
    const bool is_named = list_.find(one.name) || std::ranges::find(retired, one.name) != retired.end() ||
                          std::ranges::find(unlisted, one.name, &Manifest::name) != unlisted.end();
    if (one.run_id == options().run_id && !is_named && writer_.folder().holds(one))
      unlisted.push_back(std::move(found.manifest));
  }
  list_.adopt_unlisted(unlisted, batch);
  return unlisted;
}

StateDict load(const Found& checkpoint, int rank, int ranks) {
  StateDict state;
  if (checkpoint.manifest.find(kStateFile)) state = read_state(checkpoint, kStateFile);
  add_parts(checkpoint, state, rank, ranks);
  state[kModel] = read_weights(checkpoint, kModelFile);
  return state;
}

void verify(const Found& checkpoint) {
  for (const Manifest::File& part : checkpoint.manifest.files) {
    const formats::SafetensorsFile file = open_file(checkpoint, part.name);
    for (const formats::TensorEntry& tensor : file.tensors()) file.read(tensor);
  }
}

}  // namespace composer::saving
