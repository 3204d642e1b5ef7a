#include "composer/trainer/collective_saving.h"

#include <filesystem>
#include <string>
#include <utility>

#include <c10/util/ScopeExit.h>

#include "composer/checkpoint/checkpoint_writer.h"
#include "composer/checkpoint/parts.h"
#include "composer/checkpoint/run_saver.h"
#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/trainer.h"

namespace composer {

CollectiveSaving::CollectiveSaving(const TrainerOptions& options, const Ranks& ranks, const State& state,
                                   saving::RunSaver* saver, Shares shares)
    : options_(options), ranks_(ranks), state_(state), saver_(saver), shares_(std::move(shares)) {}

bool CollectiveSaving::is_needed() const {
  return ranks_.zero_stage() > 0 && state_.optimizer && !options_.save_folder.empty() && !options_.save_weights_only;
}

void CollectiveSaving::check_folder() const {
  if (!is_needed() || !ranks_.shards_checkpoints() || options_.save_num_checkpoints_to_keep == 0) return;
  const std::string ticket =
      ranks_.same(ranks_.together([&] { return saver_ ? saver_->open_parts(ranks_.size()) : std::string(); }));
  const auto drop = c10::make_scope_exit([&] {
    if (saver_) saver_->writer().drop_parts();
  });
  if (ticket.empty()) return;
  ranks_.together([&] {
    const std::filesystem::path folder = saving::PartTicket::parse(ticket).folder;
    if (!std::filesystem::is_directory(folder))
      throw ConfigError("save_folder: rank ", ranks_.rank(), " does not see ", folder.parent_path().string(),
                        ", and with distributed.sharded_checkpoints every rank writes there; set a folder on a ",
                        "shared file system, or sharded_checkpoints = false");
  });
}

void CollectiveSaving::save(const std::function<void()>& of_first, bool by_hand) {
  const bool in_parts = ranks_.shards_checkpoints();
  std::string ticket;
  if (in_parts)
    ticket = ranks_.same(saver_ ? saver_->open_parts(ranks_.size()) : std::string());
  else
    whole_ = shares_.whole_optimizer();
  const auto forget = c10::make_scope_exit([&] { whole_.reset(); });
  if (in_parts && ticket.empty()) {  // a warning has given the reason
    if (by_hand) throw CheckpointError("save_checkpoint: rank 0 cannot make a folder for the parts of all ranks");
    return;
  }
  const auto write = [&] {
    if (saver_) return of_first();
    if (!in_parts) return;
    part_writer().write(saving::PartTicket::parse(ticket), shares_.own_part());
    if (by_hand) writer_->wait();
  };
  if (by_hand)
    ranks_.together(write);
  else
    write();
}

void CollectiveSaving::rethrow_error() {
  if (writer_) writer_->rethrow_error();
}

void CollectiveSaving::wait() {
  if (writer_) writer_->wait();
}

saving::PartWriter& CollectiveSaving::part_writer() {
  if (!writer_)
    writer_ = std::make_unique<saving::PartWriter>(ranks_.rank(), ranks_.size(), options_.save_on_failure,
                                                   options_.save_async);
  return *writer_;
}

}  // namespace composer
