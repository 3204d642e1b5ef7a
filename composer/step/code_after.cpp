#include "composer/step/code_after.h"

namespace composer {

std::string_view code_after(Event event) {
  switch (event) {
    case Event::BEFORE_DATALOADER:
      return "the train loader";
    case Event::BATCH_START:
      return "splitting the batch";
    case Event::BEFORE_TRAIN_BATCH:
    case Event::AFTER_BACKWARD:
      return "Model::loss_weight, a transform of microbatches or a metric";
    case Event::BEFORE_FORWARD:
      return "Model::forward";
    case Event::BEFORE_LOSS:
      return "Model::loss";
    case Event::BEFORE_BACKWARD:
      return "the backward pass";
    case Event::AFTER_TRAIN_BATCH:
      return "the optimizer, a metric or a logger";
    case Event::EVAL_START:
    case Event::EVAL_BATCH_END:
      return "the evaluator's loader or a metric";
    case Event::EVAL_BEFORE_FORWARD:
      return "Model::eval_forward";
    case Event::EVAL_AFTER_FORWARD:
      return "a metric";
    case Event::PREDICT_START:
    case Event::PREDICT_BATCH_END:
      return "the loader";
    case Event::PREDICT_BEFORE_FORWARD:
      return "Model::forward";
    default:
      return "the run";
  }
}

}  // namespace composer
