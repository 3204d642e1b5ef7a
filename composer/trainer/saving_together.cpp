// What all ranks do when a checkpoint is written of an optimizer whose state is divided among them.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/ScopeExit.h>

#include "composer/checkpoint/ignore_keys.h"
#include "composer/checkpoint/part_writer.h"
#include "composer/checkpoint/parts.h"
#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/core/plugin_state.h"
#include "composer/optim/optimizer_state.h"
#include "composer/trainer/impl.h"
#include "composer/trainer/resume_with.h"

namespace composer {

// Else rank 0 has all that it saves.
bool Trainer::Impl::saves_together() const {
  return ranks.zero_stage() > 0 && state.optimizer && !options.save_folder.empty() && !options.save_weights_only;
}

// Of rank 0.
void Trainer::Impl::save_periodic() {
  if (options.resume_with.empty()) return saver->save_periodic(state);
  saver->wait();  // what fails here is not planned
  together->plan_save({.fit = fits.place->number, .batch = state.timestamp.batch});
  saver->save_periodic(state);
  together->note_writing(saver->written());
}

// Rank 0 alone knows what is due: it has the clock that seconds are counted by.
void Trainer::Impl::save_if_due(Event event) {
  if (mark && saver->paths().size() > 1) end_mark_if_saved();  // all but the last are on disk
  const bool compared = event != Event::BATCH_CHECKPOINT;
  if (compared) replicas.compare();
  if (!saves_together()) {
    if (saver && saver->is_due(event, state)) save_periodic();
    if (compared) replicas.take_saved();  // else the others hear of it
    return;
  }
  if (part_writer) part_writer->rethrow_error();
  if (!ranks.any(saver && saver->is_due(event, state))) return;
  replicas.compare();
  save_together([&] { save_periodic(); });
}

void Trainer::Impl::save_last() {
  replicas.compare();
  if (!saves_together()) {
    if (saver && saver->is_due_last(state)) save_periodic();
    return;
  }
  if (ranks.any(saver && saver->is_due_last(state))) save_together([&] { save_periodic(); });
}

// After a pause, what hooks draw at FIT_START changes nothing, whether it is saved or not: so it is in a run that goes
// on from there. Where the newest checkpoint is of a fit that would go on, the program has begun another, and the new
// one is on disk before.
void Trainer::Impl::save_begin() {
  if (fit->follows_pause && !resumption.waiting.find("rng")) resumption.waiting.keep("rng", random.state());
  const bool due = fit->begins_after_pause && state.run->is_resumable();
  if (!ranks.any(due)) return;
  replicas.compare();
  if (saves_together())
    save_together([&] { save_periodic(); });
  else if (saver)
    save_periodic();
  if (saver) saver->wait();
  if (part_writer) part_writer->wait();
}

std::string Trainer::Impl::write_by_hand(const std::string& name) {
  replicas.compare(/*modes=*/false);
  std::string path;
  const auto write = [&] { path = saver->save_by_hand(name, state); };
  if (saves_together())
    save_together(write, /*by_hand=*/true);
  else
    ranks.together([&] {
      if (saver) write();
    });
  replicas.take_saved();
  share_saved();
  return ranks.same(path);
}

// The last evaluation of a fit comes after its last checkpoint, and so does what the program has measured since.
void Trainer::Impl::wait_for_saves() {
  if (saver) {
    saver->note_metrics(state);
    saver->finish();
  }
  if (part_writer) part_writer->wait();
  end_mark_if_saved();
}

// Outside of a fit: the process may end before the next checkpoint.
void Trainer::Impl::write_notes() {
  if (saver && saver->has_notes()) saver->finish();
  share_saved();
}

// As text: the best, then all, each with a zero behind it, which no path contains.
void Trainer::Impl::share_saved() {
  if (ranks.alone()) return;
  std::string text;
  if (saver) {
    text = saver->best_path(state).value_or("") + '\0';
    for (const std::string& path : saver->paths()) text += path + '\0';
  }
  text = ranks.same(text);
  saved_by_rank_0 = {};
  std::vector<std::string> paths;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = text.find('\0', begin);
    paths.push_back(text.substr(begin, end - begin));
  }
  if (paths.empty()) return;
  if (!paths.front().empty()) saved_by_rank_0.best = paths.front();
  saved_by_rank_0.all.assign(paths.begin() + 1, paths.end());
}

// `save` is rank 0's share of it. By hand, it is an error on all ranks if one of them cannot write.
void Trainer::Impl::save_together(const std::function<void()>& save, bool by_hand) {
  const bool in_parts = ranks.shards_checkpoints();
  std::string ticket;
  if (in_parts)
    ticket = ranks.same(saver ? saver->open_parts(ranks.size()) : std::string());
  else
    whole_optimizer = train_step.optimizer_shards()->gather(own_optimizer());
  const auto forget = c10::make_scope_exit([&] { whole_optimizer.reset(); });
  if (in_parts && ticket.empty()) {  // a warning has said why
    if (by_hand) throw CheckpointError("save_checkpoint: rank 0 cannot make a folder for the parts of all ranks");
    return;
  }
  const auto write = [&] {
    if (saver) return save();
    if (!in_parts) return;
    parts_writer().write(saving::PartTicket::parse(ticket), own_part());
    if (by_hand) part_writer->wait();
  };
  if (by_hand)
    ranks.together(write);
  else
    write();
}

StateDict Trainer::Impl::own_optimizer() {
  StateDict own;
  StateVisitor visit = StateVisitor::saving(own);
  visit_optimizer(visit, *state.optimizer, as_module(*state.model), owns_state());
  return own;
}

// Also what algorithms and callbacks remember, which may differ by rank.
StateDict Trainer::Impl::own_part() {
  StateDict part;
  StateVisitor visit = StateVisitor::saving(part);
  visit_plugins(visit, engine);
  part["optimizer"] = own_optimizer();
  saving::ignore_keys(part, options.save_ignore_keys);
  return part;
}

saving::PartWriter& Trainer::Impl::parts_writer() {
  if (!part_writer)
    part_writer =
        std::make_unique<saving::PartWriter>(ranks.rank(), ranks.size(), options.save_on_failure, options.save_async);
  return *part_writer;
}

// Before a fit: every rank sees the folder that rank 0 makes.
void Trainer::Impl::check_parts() {
  if (!saves_together() || !ranks.shards_checkpoints() || options.save_num_checkpoints_to_keep == 0) return;
  const std::string ticket =
      ranks.same(ranks.together([&] { return saver ? saver->open_parts(ranks.size()) : std::string(); }));
  const auto drop = c10::make_scope_exit([&] {
    if (saver) saver->drop_parts();
  });
  if (ticket.empty()) return;
  ranks.together([&] {
    const std::filesystem::path folder = saving::PartTicket::parse(ticket).folder;
    if (!std::filesystem::is_directory(folder))
      throw ConfigError("save_folder: rank ", ranks.rank(), " does not see ", folder.parent_path().string(),
                        ", and with distributed.sharded_checkpoints every rank writes there; set a folder on a ",
                        "shared file system, or sharded_checkpoints = false");
  });
}

}  // namespace composer
