#include "composer/trainer/batch_source.h"

#include <utility>

#include "composer/core/error.h"

namespace composer {

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

void BatchSource::stage_next() {
  if (placed_) feed_.stage_next();
}

}  // namespace composer
