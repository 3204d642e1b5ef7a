#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "composer/core/export.h"

// Every event, in the order in which a run fires them. This list is the only one: the enum, the names, the methods of
// Callback and the engine's table are made from it, and docs/reference/events.md shows it as a table. Each row is the
// enumerator, the method of Callback, whether it opens something (BEFORE), closes it (AFTER) or neither, and what holds
// at this event.
#define COMPOSER_EVENTS(COMPOSER_X)                                                                                    \
  COMPOSER_X(INIT, init, NEITHER) /* no optimizer yet, so algorithms replace modules here; loggers can log */          \
  COMPOSER_X(BEFORE_LOAD, before_load, BEFORE)               /* loaders, metrics and optimizer are set up */           \
  COMPOSER_X(AFTER_LOAD, after_load, AFTER)                  /* a checkpoint has been loaded, if there was one */      \
  COMPOSER_X(FIT_START, fit_start, BEFORE)                   /* max_duration is that of this fit */                    \
  COMPOSER_X(ITERATION_START, iteration_start, BEFORE)       /* a span of iteration_length begins */                   \
  COMPOSER_X(EPOCH_START, epoch_start, BEFORE)               /* timestamp.batch_in_epoch is 0 */                       \
  COMPOSER_X(BEFORE_DATALOADER, before_dataloader, BEFORE)   /* also before the fetch that finds the epoch's end */    \
  COMPOSER_X(AFTER_DATALOADER, after_dataloader, AFTER)      /* batch: whole, on the host, after batch_transforms */   \
  COMPOSER_X(BATCH_START, batch_start, BEFORE)               /* batch: whole, on the host; its samples are counted */  \
  COMPOSER_X(BEFORE_TRAIN_BATCH, before_train_batch, BEFORE) /* gradients: those of the previous batch */              \
  COMPOSER_X(BEFORE_FORWARD, before_forward, BEFORE)         /* batch: one microbatch, on the device */                \
  COMPOSER_X(AFTER_FORWARD, after_forward, AFTER)            /* outputs: of this microbatch */                         \
  COMPOSER_X(BEFORE_LOSS, before_loss, BEFORE)               /* outputs and batch: what the loss will get */           \
  COMPOSER_X(AFTER_LOSS, after_loss, AFTER)                  /* loss: of this microbatch, not weighted yet */          \
  COMPOSER_X(BEFORE_BACKWARD, before_backward, BEFORE)       /* loss: what will be differentiated, not weighted yet */ \
  COMPOSER_X(AFTER_BACKWARD, after_backward, AFTER)          /* gradients: the sum over the microbatches so far */     \
  COMPOSER_X(AFTER_TRAIN_BATCH, after_train_batch, AFTER)    /* batch: whole again; gradients: final, unscaled */      \
  COMPOSER_X(BATCH_END, batch_end, AFTER)                 /* the weights are updated; timestamp counts this batch */   \
  COMPOSER_X(BATCH_CHECKPOINT, batch_checkpoint, NEITHER) /* evaluations due after the batch are done */               \
  COMPOSER_X(EPOCH_END, epoch_end, AFTER)                 /* timestamp counts this epoch */                            \
  COMPOSER_X(EPOCH_CHECKPOINT, epoch_checkpoint, NEITHER) /* evaluations due after the epoch are done */               \
  COMPOSER_X(ITERATION_END, iteration_end, AFTER)         /* timestamp counts this iteration */                        \
  COMPOSER_X(ITERATION_CHECKPOINT, iteration_checkpoint, NEITHER) /* evaluations due after it are done */              \
  COMPOSER_X(FIT_END, fit_end, AFTER)                             /* before the final evaluation */                    \
  COMPOSER_X(EVAL_BEFORE_ALL, eval_before_all, BEFORE)            /* within a fit: at least one evaluator is due */    \
  COMPOSER_X(EVAL_START, eval_start, BEFORE) /* dataloader_label: the evaluator's; model in evaluation mode */         \
  COMPOSER_X(EVAL_BATCH_START, eval_batch_start, BEFORE)       /* batch: whole, on the host */                         \
  COMPOSER_X(EVAL_BEFORE_FORWARD, eval_before_forward, BEFORE) /* batch: one microbatch, on the device */              \
  COMPOSER_X(EVAL_AFTER_FORWARD, eval_after_forward, AFTER)    /* outputs: what the metrics will get */                \
  COMPOSER_X(EVAL_BATCH_END, eval_batch_end, AFTER)            /* eval_timestamp counts this batch */                  \
  COMPOSER_X(EVAL_END, eval_end, AFTER)                        /* metrics of this evaluator are final and logged */    \
  COMPOSER_X(EVAL_AFTER_ALL, eval_after_all, AFTER)            /* the training loader and batch are restored */        \
  COMPOSER_X(EVAL_STANDALONE_START, eval_standalone_start, BEFORE) /* Trainer::eval begins */                          \
  COMPOSER_X(EVAL_STANDALONE_END, eval_standalone_end, AFTER)      /* Trainer::eval ends */                            \
  COMPOSER_X(PREDICT_START, predict_start, BEFORE) /* dataloader_label: predict; model in evaluation mode */           \
  COMPOSER_X(PREDICT_BATCH_START, predict_batch_start, BEFORE)       /* batch: whole, on the device */                 \
  COMPOSER_X(PREDICT_BEFORE_FORWARD, predict_before_forward, BEFORE) /* batch: the same */                             \
  COMPOSER_X(PREDICT_AFTER_FORWARD, predict_after_forward, AFTER)    /* outputs: of this batch */                      \
  COMPOSER_X(PREDICT_BATCH_END, predict_batch_end, AFTER)            /* predict_timestamp counts this batch */         \
  COMPOSER_X(PREDICT_END, predict_end, AFTER)                        /* the previous loader is not restored yet */

namespace composer {

#define COMPOSER_X(NAME, method, kind) NAME,
enum class Event : std::uint8_t { COMPOSER_EVENTS(COMPOSER_X) };
#undef COMPOSER_X

#define COMPOSER_X(NAME, method, kind) +1
inline constexpr int kEventCount = 0 COMPOSER_EVENTS(COMPOSER_X);
#undef COMPOSER_X
static_assert(kEventCount == 40);

// "BATCH_END"
COMPOSER_EXPORT std::string_view name(Event event);
// "batch_end": the name of the callback's method, as written in logs and files.
COMPOSER_EXPORT std::string_view to_string(Event event);
// "batch": the common part of the names of a BEFORE event and its AFTER event; the profiler names its spans so.
COMPOSER_EXPORT std::string canonical_name(Event event);
// Parses either spelling, in upper or lower case. Throws ConfigError for an unknown name.
COMPOSER_EXPORT Event parse_event(std::string_view text);

COMPOSER_EXPORT bool is_before_event(Event event);
COMPOSER_EXPORT bool is_after_event(Event event);
COMPOSER_EXPORT bool is_eval(Event event);
COMPOSER_EXPORT bool is_predict(Event event);
// Whether algorithms run in reverse order at this event. These are the events whose name begins with AFTER_, which
// differs from is_after_event: BATCH_END and EVAL_AFTER_FORWARD are after-events, and not reversed.
COMPOSER_EXPORT bool is_reversed(Event event);

// A set of events, stored in one word.
class EventSet {
 public:
  constexpr EventSet() = default;
  constexpr EventSet(std::initializer_list<Event> events) {
    for (Event event : events) insert(event);
  }
  static constexpr EventSet all() {
    EventSet set;
    set.bits_ = ~std::uint64_t{0} >> (64 - kEventCount);
    return set;
  }
  constexpr void insert(Event event) { bits_ |= std::uint64_t{1} << static_cast<int>(event); }
  constexpr bool contains(Event event) const { return ((bits_ >> static_cast<int>(event)) & 1) != 0; }
  friend constexpr bool operator==(EventSet, EventSet) = default;

 private:
  std::uint64_t bits_ = 0;
};

}  // namespace composer
