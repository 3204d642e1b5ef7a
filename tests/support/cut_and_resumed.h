#pragma once
#include <exception>
#include <functional>
#include <vector>

#include <ATen/ATen.h>

#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/killed.h"
#include "tests/support/tiny.h"

namespace composer::test {

// Checks that a run that is cut off after this batch and resumed from its checkpoint ends with the parameters and
// buffers of one that is not. `options` makes the same ones every time.
inline void check_cut_and_resumed(const std::function<TrainerOptions()>& options, std::int64_t batch) {
  const auto ends_with = [](Trainer& trainer) {
    trainer.fit();
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& one : trainer.state().model->parameters()) tensors.push_back(one.detach().clone());
    for (const at::Tensor& one : trainer.state().model->buffers()) tensors.push_back(one.clone());
    return tensors;
  };
  const Folder folder;
  const auto saving = [&] {
    TrainerOptions with = options();
    with.save_folder = folder / "ck";
    with.save_interval = "1ba";
    return with;
  };
  Trainer whole(options());
  const std::vector<at::Tensor> expected = ends_with(whole);
  {
    TrainerOptions with = saving();
    with.callbacks.add(killed_at(Event::BATCH_START, batch));
    Trainer cut(std::move(with));
    CHECK_THROWS(cut.fit());
  }
  Trainer resumed(saving());
  CHECK(resumed.state().timestamp.batch == batch);
  const std::vector<at::Tensor> got = ends_with(resumed);
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i].equal(expected[i]));
}

}  // namespace composer::test
