// Ranks without samples, parameters without gradients, and gradients that come late.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "composer/dist/data_parallel.h"
#include "composer/util/recompute.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/dist/small_net.h"
#include "tests/support/doctest.h"

namespace composer::dist::test::missing_gradients_test {
namespace {

TEST_CASE("A parameter that some ranks do not use gets the mean, one that no rank uses gets no gradient") {
  for (const std::optional<bool> find_unused : {std::optional<bool>(), std::optional<bool>(true)}) {
    CAPTURE(find_unused.has_value());
    const auto by_rank = results_in_ranks(4, [&](const std::shared_ptr<World>& world) {
      const SmallNet net;
      DataParallel parallel(world, net.parameters, net.buffers, {.find_unused_parameters = find_unused});
      std::vector<bool> right;
      for (int step = 0; step < 5; ++step) {
        const bool all_use_0 = step % 3 == 0, by_turns = step == 1;  // else: each rank always the same
        const auto head_of = [&](int rank) { return all_use_0 ? 0 : (by_turns ? (rank + step) % 2 : rank / 2); };
        std::vector<Gradients> of_ranks;
        for (int rank = 0; rank < 4; ++rank)
          of_ranks.push_back(local_gradients(net, samples(rank, step), head_of(rank)));
        reduce(parallel, net, samples(world->rank(), step), head_of(world->rank()));
        right.push_back(difference(gradients_of(net.parameters), mean_of(of_ranks)) < 1e-6);
        right.push_back(net.tensor(3).grad().defined() == !all_use_0);
        descend(net);
      }
      return right;
    });
    for (const std::vector<bool>& right : by_rank) CHECK(right == std::vector<bool>(10, true));
  }
}

TEST_CASE("A parameter that only an earlier microbatch used is averaged") {
  const auto by_rank = results_in_ranks(2, [](const std::shared_ptr<World>& world) {
    const SmallNet net;
    DataParallel parallel(world, net.parameters, net.buffers);
    std::vector<double> differences;
    for (int step = 0; step < 3; ++step) {
      const auto sum_of = [&](int rank) {
        SmallNet copy;
        for (std::size_t i = 0; i < 4; ++i) copy.tensor(i).detach().copy_(net.tensor(i).detach());
        if (rank == 0) accumulate(copy, samples(0, step), 1);
        accumulate(copy, samples(rank, step + 5), 0);
        return gradients_of(copy.parameters);
      };
      if (world->rank() == 0) accumulate(net, samples(0, step), 1);
      reduce(parallel, net, samples(world->rank(), step + 5), 0);
      differences.push_back(difference(gradients_of(net.parameters), mean_of({sum_of(0), sum_of(1)})));
      descend(net);
    }
    return differences;
  });
  for (const auto& differences : by_rank)
    for (const double one : differences) CHECK(one < 1e-6);
}

TEST_CASE("A parameter without a gradient is an error on all ranks, with its name and the rank") {
  struct Row {
    const char* because;
    std::optional<bool> find_unused;
    int good_steps;
  };
  for (const Row& row : {Row{"the first step", false, 0}, Row{"a later step", false, 3}}) {
    CAPTURE(row.because);
    const auto errors = errors_in_ranks(4, [&](const std::shared_ptr<World>& world) {
      const SmallNet net;
      DataParallel parallel(world, net.parameters, net.buffers, {.find_unused_parameters = row.find_unused});
      for (int step = 0; step < row.good_steps; ++step) {
        reduce(parallel, net, samples(world->rank(), step));
        clear(net.parameters);
      }
      reduce(parallel, net, samples(world->rank(), 9), world->rank() == 2 ? 0 : 2);
    });
    for (const std::string& error : errors) {
      CHECK(error.find("no gradient for other head on rank 2.") != std::string::npos);
      CHECK(error.find("find_unused_parameters = true") != std::string::npos);
    }
  }
}

TEST_CASE("Unless each step must use all parameters, a later one may leave out some, on one rank or on all") {
  for (const int without : {0, 2}) {  // the ranks that leave it out: those from here on
    CAPTURE(without);
    const auto by_rank = results_in_ranks(4, [&](const std::shared_ptr<World>& world) {
      const SmallNet net;
      DataParallel parallel(world, net.parameters, net.buffers);
      std::vector<bool> right;
      for (int step = 0; step < 6; ++step) {
        const auto head_of = [&](int rank) { return (step == 2 || step == 4) && rank >= without ? 0 : 2; };
        std::vector<Gradients> of_ranks;
        for (int rank = 0; rank < 4; ++rank)
          of_ranks.push_back(local_gradients(net, samples(rank, step), head_of(rank)));
        reduce(parallel, net, samples(world->rank(), step), head_of(world->rank()));
        right.push_back(difference(gradients_of(net.parameters), mean_of(of_ranks)) < 1e-6);
        descend(net);
      }
      return right;
    });
    for (const std::vector<bool>& right : by_rank) CHECK(right == std::vector<bool>(6, true));
  }
}

TEST_CASE("A rank without samples takes part in any step and gets the mean with zeros") {
  struct Row {
    std::optional<bool> find_unused;
    int absent, first, last;  // rank, steps
    bool accumulates;         // a gradient of an earlier microbatch
  };
  std::vector<Row> rows;
  for (const std::optional<bool> find_unused : {std::optional<bool>(), std::optional<bool>(true)})
    for (const int absent : {0, 2})
      for (const bool accumulates : {false, true})
        for (const auto& [first, last] : {std::pair(0, 0), std::pair(1, 1), std::pair(0, 3), std::pair(2, 2)})
          rows.push_back({find_unused, absent, first, last, accumulates});
  for (const Row& row : rows) {
    CAPTURE(row.find_unused.has_value());
    CAPTURE(row.absent);
    CAPTURE(row.first);
    CAPTURE(row.last);
    CAPTURE(row.accumulates);
    struct Result {
      Gradients all;
      double worst;
      double passes;
    };
    const auto results = results_in_ranks(3, [&](const std::shared_ptr<World>& world) {
      const SmallNet net;
      DataParallel parallel(world, net.parameters, net.buffers, {.find_unused_parameters = row.find_unused});
      Result result{{}, 0, 0};
      for (int step = 0; step < 5; ++step) {
        const bool one_is_absent = step >= row.first && step <= row.last;
        const int head = row.find_unused && step == 2 ? 0 : 2;  // with unused parameters
        std::vector<Gradients> of_ranks;
        for (int rank = 0; rank < 3; ++rank) {
          Gradients local = local_gradients(net, samples(rank, step), head);
          if (one_is_absent && rank == row.absent)
            local = row.accumulates ? local_gradients(net, samples(rank, step + 7), head) : Gradients(4);
          of_ranks.push_back(std::move(local));
        }
        if (!one_is_absent || world->rank() != row.absent) {
          reduce(parallel, net, samples(world->rank(), step), head);
        } else {
          if (row.accumulates) accumulate(net, samples(world->rank(), step + 7), head);
          parallel.take_part();
        }
        const Gradients reduced = gradients_of(net.parameters);
        result.worst = std::max(result.worst, difference(reduced, mean_of(of_ranks)));
        result.all.insert(result.all.end(), reduced.begin(), reduced.end());
        descend(net);
      }
      parallel.before_forward();
      result.passes = net.buffers[0].second.item<double>();
      return result;
    });
    for (const Result& result : results) {
      CHECK(result.worst < 1e-6);
      CHECK(equal_bits(result.all, results.front().all));
      CHECK(result.passes == results.front().passes);
    }
  }
}

TEST_CASE("Steps in which no rank has samples decide nothing and leave gradients undefined") {
  const auto by_rank = results_in_ranks(2, [](const std::shared_ptr<World>& world) {
    const SmallNet net;
    DataParallel parallel(world, net.parameters, net.buffers);
    parallel.take_part();
    const bool undefined = difference(gradients_of(net.parameters), Gradients(4)) == 0;
    reduce(parallel, net, samples(world->rank(), 0), 0);  // some parameters are unused: this step decides
    clear(net.parameters);
    reduce(parallel, net, samples(world->rank(), 1), 1);
    clear(net.parameters);
    parallel.take_part();
    return undefined && difference(gradients_of(net.parameters), Gradients(4)) == 0;
  });
  for (const bool undefined : by_rank) CHECK(undefined);
}

TEST_CASE("An element-free parameter that only some ranks use is defined on all or on none") {
  const auto by_rank = results_in_ranks(2, [](const std::shared_ptr<World>& world) {
    const at::Tensor weight = at::ones({3}).requires_grad_(), empty = at::ones({0}).requires_grad_();
    DataParallel parallel(world, {{"weight", weight}, {"empty", empty}}, {}, {.find_unused_parameters = true});
    std::vector<bool> defined;
    for (const int users : {0, 1, 2}) {
      parallel.before_forward();
      at::Tensor loss = weight.sum();
      if (world->rank() < users) loss = loss + empty.sum();
      parallel.before_backward({loss});
      loss.backward();
      parallel.after_backward();
      defined.push_back(empty.grad().defined());
      weight.mutable_grad().reset();
      empty.mutable_grad().reset();
    }
    return defined;
  });
  for (const std::vector<bool>& defined : by_rank) CHECK(defined == std::vector<bool>{false, true, true});
}

// A tied weight in two segments: each has a backward pass of its own that adds to the gradient.
at::Tensor checkpointed(const SmallNet& net, const at::Tensor& x) {
  const auto layer = [&](const at::Tensor& in) {
    return at::tanh(at::linear(in, net.tensor(0).matmul(net.tensor(0).t())));
  };
  const at::Tensor narrow = at::linear(x, net.tensor(0));
  const at::Tensor once = checkpoint(layer, narrow), twice = checkpoint(layer, once);
  const auto second = [&](const at::Tensor& in) { return at::tanh(at::linear(in, net.tensor(1))); };
  const at::Tensor hidden = checkpoint(second, twice);  // no node outside of a segment leads to this weight
  return at::linear(hidden, net.tensor(2)) * at::linear(hidden, net.tensor(3));
}

TEST_CASE("Gradients that checkpoint() segments complete late are averaged as a whole") {
  for (const std::optional<bool> find_unused : {std::optional<bool>(), std::optional<bool>(true)}) {
    const auto by_rank = results_in_ranks(2, [&](const std::shared_ptr<World>& world) {
      const SmallNet net;
      DataParallel parallel(world, net.parameters, net.buffers, {.find_unused_parameters = find_unused});
      double worst = 0;
      for (int step = 0; step < 3; ++step) {
        std::vector<Gradients> of_ranks;
        for (int rank = 0; rank < 2; ++rank) {
          const SmallNet copy;
          checkpointed(copy, samples(rank, step)).pow(2).sum().backward();
          of_ranks.push_back(gradients_of(copy.parameters));
        }
        parallel.before_forward();
        const at::Tensor out = checkpointed(net, samples(world->rank(), step));
        parallel.before_backward({out});
        out.pow(2).sum().backward();
        parallel.after_backward();
        worst = std::max(worst, difference(gradients_of(net.parameters), mean_of(of_ranks)));
        clear(net.parameters);
      }
      return worst;
    });
    for (const double worst : by_rank) CHECK(worst < 1e-6);
  }
}

TEST_CASE("A second gradient after the first has been sent is an error with the parameter's name") {
  const auto errors = errors_in_ranks(2, [](const std::shared_ptr<World>& world) {
    const SmallNet net;
    DataParallel parallel(world, net.parameters, net.buffers);
    parallel.before_forward();
    const at::Tensor out = net.forward(samples(world->rank(), 0));
    parallel.before_backward({out});
    const at::Tensor loss = out.pow(2).sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  });
  for (const std::string& error : errors) CHECK(error.find("got another gradient after its own") != std::string::npos);
}

}  // namespace
}  // namespace composer::dist::test::missing_gradients_test
