#include "composer/trainer/batch_source.h"

#include <utility>

#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/trainer/ranks.h"

namespace composer {

BatchSource::BatchSource(Feed feed, const Ranks& ranks, std::optional<std::int64_t> longest)
    : feed_(std::move(feed)), others_(has_loader() && ranks.have_own_loaders() ? &ranks : nullptr), longest_(longest) {}

bool BatchSource::read(State& state, std::int64_t epoch, const std::function<void()>& release) {
  const std::function<void()> let_go = [&] {
    state.batch.clear();
    release();
  };
  std::optional<Batch> batch =
      others_ ? next_of_ranks(state, epoch, let_go) : next(epoch, state.timestamp.batch_in_epoch, let_go);
  if (batch) state.batch = std::move(*batch);
  state.dataloader_len = epoch_length();
  return batch.has_value();
}

std::optional<Batch> BatchSource::next(std::int64_t epoch, std::int64_t batch, const std::function<void()>& release) {
  feed_.forget_batch();
  if (given_) {
    std::optional<Batch> given = std::exchange(given_, std::nullopt);
    feed_.prepare(*given);
    return given;
  }
  if (!std::exchange(placed_, true) || !feed_.is_at(epoch, batch)) feed_.seek(epoch, batch);
  if (feed_.sure_of_next()) release();
  std::optional<Batch> next = feed_.next();
  if (!next && batch == 0)
    throw DataError(feed_.label(), " loader: epoch ", epoch,
                    " has no batch; is the data set empty, or smaller than a batch with drop_last?");
  return next;
}

std::optional<Batch> BatchSource::next_of_ranks(State& state, std::int64_t epoch,
                                                const std::function<void()>& release) {
  const std::int64_t place = state.timestamp.batch_in_epoch;
  const std::optional<std::int64_t> own = own_length();
  if (place == 0) has_run_out_ = false;
  if (own && place > 0 && place >= *own) has_run_out_ = true;  // also when a run is resumed at the end of the epoch
  std::optional<Batch> batch;
  if (!has_run_out_) batch = next(epoch, place, release);
  has_run_out_ = !batch;
  if (!others_->any(batch.has_value())) return std::nullopt;
  if (batch) return batch;
  if (state.batch.empty())
    // The first batch, for the shapes and types of its tensors.
    state.batch = next(epoch, 0, release).value_or(Batch());
  lose_place();
  feed_.count_nothing();
  Batch nothing = state.batch;
  for (auto& [name, tensor] : nothing)
    if (tensor.dim() > 0) tensor = tensor.slice(0, 0, 0);
  return nothing;
}

void BatchSource::stage_next() {
  if (placed_) feed_.stage_next();
}

}  // namespace composer
