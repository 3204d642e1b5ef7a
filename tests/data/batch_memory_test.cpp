// A loader writes into the memory of batches that nobody holds any more, and never into one that somebody kept.
#include <set>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "composer/data/in_memory.h"
#include "tests/support/doctest.h"

namespace composer::batch_memory_test {

using data::in_memory;

namespace {

Batch images(std::int64_t n) {
  return {{"input", at::arange(n * 12).remainder(251).to(at::kByte).view({n, 3, 2, 2})}, {"target", at::arange(n)}};
}

std::shared_ptr<Loader> loader_of(std::int64_t prefetch) {
  return in_memory(images(64), {.batch_size = 4, .normalize = data::Normalize{{0}, {1}}, .prefetch = prefetch});
}

}  // namespace

TEST_CASE("Batches that nobody keeps share the memory of a few") {
  for (std::int64_t prefetch : {0, 3}) {
    const auto loader = loader_of(prefetch);
    std::set<const void*> inputs, targets;
    for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
      loader->seek(epoch, 0);
      while (const auto batch = loader->next()) {
        inputs.insert(batch->at("input").const_data_ptr());
        targets.insert(batch->at("target").const_data_ptr());
      }
    }
    CHECK(inputs.size() <= static_cast<std::size_t>(prefetch) + 2);
    CHECK(targets.size() <= static_cast<std::size_t>(prefetch) + 2);
  }
}

TEST_CASE("A kept batch is not written to, whether the tensor, a view, an alias or only its storage was kept") {
  for (std::int64_t prefetch : {0, 2}) {
    for (int kept_as = 0; kept_as < 5; ++kept_as) {
      CAPTURE(kept_as);
      const auto loader = loader_of(prefetch);
      std::vector<at::Tensor> kept, copies;
      std::vector<c10::Storage> storages;
      for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
        loader->seek(epoch, 0);
        while (const auto batch = loader->next()) {
          const at::Tensor& input = batch->at("input");
          copies.push_back(input.clone());
          if (kept_as == 0) kept.push_back(input);
          if (kept_as == 1) kept.push_back(input.slice(0, 1, 2));
          if (kept_as == 2) kept.push_back(input.detach());
          if (kept_as == 3) kept.push_back(input.view({-1}));
          if (kept_as == 4) storages.push_back(input.storage());
        }
      }
      for (std::size_t i = 0; i < copies.size(); ++i) {
        if (kept_as == 1) copies[i] = copies[i].slice(0, 1, 2);
        if (kept_as == 3) copies[i] = copies[i].view({-1});
        if (kept_as == 4) kept.push_back(at::empty({0}).set_(storages[i]).view(copies[i].sizes()));
        CHECK(kept[i].equal(copies[i]));
      }
    }
  }
}

TEST_CASE("What a gradient needs of a batch is not written to") {
  const auto loader = loader_of(0);
  const at::Tensor weight = at::ones({1, 3, 2, 2}).requires_grad_();
  at::Tensor loss, sum;
  {
    const auto batch = loader->next();
    sum = batch->at("input").sum(0, true);
    loss = (batch->at("input") * weight).sum();
  }
  for (int i = 0; i < 5; ++i) loader->next();
  loss.backward();
  CHECK(weight.grad().equal(sum));
}

TEST_CASE("Nothing that was done to a batch is left in a later one") {
  const auto changed = loader_of(0), untouched = loader_of(0);
  while (auto batch = changed->next()) {
    const auto same = untouched->next();
    at::Tensor input = batch->at("input");
    CHECK_FALSE(input.requires_grad());
    CHECK(input.sizes() == same->at("input").sizes());
    CHECK(input.equal(same->at("input")));
    CHECK_FALSE(input.is_inference());
    input.unsqueeze_(0).zero_();
    input.requires_grad_();
  }
}

TEST_CASE("Batches are ordinary tensors again after an evaluation in inference mode, whose memory may shrink") {
  const auto loader = loader_of(0);
  for (int i = 0; i < 3; ++i) {
    {
      const c10::InferenceMode inference;
      auto batch = loader->next();
      CHECK(batch->at("input").is_inference());
      batch->at("input").storage().set_nbytes(0);
    }
    const auto batch = loader->next();
    CHECK_FALSE(batch->at("input").is_inference());
    CHECK(batch->at("input").storage().nbytes() >= 4 * 12 * sizeof(float));
  }
}

TEST_CASE("Batches outlive their loader") {
  auto loader = loader_of(2);
  const auto batch = loader->next();
  const at::Tensor copy = batch->at("input").clone();
  loader.reset();
  CHECK(batch->at("input").equal(copy));
}

}  // namespace composer::batch_memory_test
