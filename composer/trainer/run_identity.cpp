#include "composer/trainer/run_identity.h"

#include <cstdint>
#include <filesystem>

#include "composer/checkpoint/checkpoint_writer.h"
#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/run_saver.h"
#include "composer/checkpoint/saved_list.h"
#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/net/remote_store.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/trainer.h"
#include "composer/trainer/trainer_options.h"
#include "composer/util/checksum.h"

namespace composer {
namespace {

// The file that a plug-in or the trainer writes to.
std::string claimed_place(const std::filesystem::path& folder, const std::string& filename) {
  return (saving::canonical_folder(folder) / filename).lexically_normal();
}

}  // namespace

bool RunIdentity::is_resumable() const {
  return !options_.save_folder.empty() && resumes(options_) && options_.save_num_checkpoints_to_keep != 0;
}

std::string RunIdentity::text() const {
  if (!is_resumable()) return {};
  std::string folder = saving::format_name(options_.save_folder, state_.run_name);
  if (!net::is_uri(folder)) folder = std::filesystem::absolute(folder).lexically_normal();
  while (folder.ends_with('/')) folder.pop_back();
  return options_.run_name + '\n' + folder;
}

std::string RunIdentity::claim(const void* by, const char* who, const std::string& folder, const std::string& filename,
                               bool whole) {
  const std::string place = claimed_place(folder, filename);
  const bool is_trainers =
      saver_ && (place == claimed_place(saver_->options().folder, options_.save_filename) ||
                 (whole && saving::canonical_folder(folder) == saving::canonical_folder(saver_->options().folder)));
  if (is_trainers)
    throw ConfigError(who, folder, " is the trainer's save_folder, whose checkpoints would be taken for these, and ",
                      "these for the trainer's; set another folder", whole ? "" : ", or another filename");
  if (writers_.try_emplace(place, by).first->second != by)
    throw ConfigError(who, folder, " is where another one writes, with the names ", filename,
                      ", so that each would meet the other's; set another folder, or another filename");
  if (!is_resumable() || !saver_) return {};
  util::Checksum sum;
  for (const std::string& text : {saver_->options().run_id, filename}) sum.update(text.c_str(), text.size() + 1);
  const std::string text = sum.text();
  return text.substr(text.find(':') + 1);
}

void RunIdentity::begin(bool has_callbacks) {
  ranks_.together([&] {  // on all ranks, whose options have not been compared yet
    if (!is_resumable() || !saver_ || !has_callbacks) return;
    const std::filesystem::path& folder = saver_->options().folder;
    if (state_.resumes) return saving::RunMark::end_left(folder, options_.run_name);
    mark_.emplace(folder, options_.run_name, saver_->options().run_id);
    if (mark_->was_left() && !begins_again_) saver_->writer().take_run_id(mark_->run_id());
    begins_again_ = begins_again_ || mark_->was_left();
  });
  begins_again_ = ranks_.same(std::uint64_t{begins_again_}) != 0;
}

void RunIdentity::refuse() {
  if (mark_ && !mark_->was_left()) mark_->end();
}

void RunIdentity::end_mark_if_saved(bool all_on_disk) {
  if (!mark_ || saver_->list().names().size() < (all_on_disk ? 1 : 2)) return;
  mark_->end();
  mark_.reset();
}

void RunIdentity::end() {
  if (mark_) mark_->end();
}

}  // namespace composer
