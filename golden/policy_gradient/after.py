"""REINFORCE on a corridor: start in the middle, the exit is on the right, every step costs a little."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

parser = argparse.ArgumentParser(description='Policy gradient on a corridor')
parser.add_argument('--gamma', type=float, default=0.95, help='what a reward is worth one step later')
parser.add_argument('--length', type=int, default=7, help='cells of the corridor')
parser.add_argument('--episodes', type=int, default=200)
parser.add_argument('--seed', type=int, default=12)
parser.add_argument('--log-interval', type=int, default=10)
args = parser.parse_args()

torch.manual_seed(args.seed)
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


class Corridor:
    def __init__(self, length, max_steps=30):
        self.length = length
        self.max_steps = max_steps

    def reset(self):
        self.position = self.length // 2
        self.steps = 0
        return self.observation()

    def observation(self):
        return F.one_hot(torch.tensor(self.position), self.length).float()

    def step(self, action):
        self.steps += 1
        self.position = max(0, self.position + (1 if action == 1 else -1))
        done = self.position >= self.length - 1
        reward = 1.0 if done else -0.05
        return (None if done else self.observation()), reward, done or self.steps >= self.max_steps


class Policy(nn.Module):
    def __init__(self, length):
        super(Policy, self).__init__()
        self.hidden = nn.Linear(length, 16)
        self.action = nn.Linear(16, 2)  # left, right

    def forward(self, x):
        return F.softmax(self.action(F.relu(self.hidden(x))), dim=-1)


env = Corridor(args.length)
policy = Policy(args.length).to(device)
optimizer = optim.Adam(policy.parameters(), lr=0.05)


def play():
    """One episode: the log-probabilities of what was done, and the reward of every step."""
    log_probs, rewards = [], []
    observation, done = env.reset(), False
    while not done:
        choice = Categorical(policy(observation.to(device)))
        action = choice.sample()
        log_probs.append(choice.log_prob(action))
        observation, reward, done = env.step(action.item())
        rewards.append(reward)
    return torch.stack(log_probs), rewards


def discounted(rewards):
    total, result = 0.0, []
    for reward in reversed(rewards):
        total = reward + args.gamma * total
        result.append(total)
    result = torch.tensor(result[::-1], device=device)
    return (result - result.mean()) / (result.std(unbiased=False) + 1e-8)


def main():
    average = None
    for episode in range(1, args.episodes + 1):
        log_probs, rewards = play()
        loss = -(log_probs * discounted(rewards)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        reward = sum(rewards)
        average = reward if average is None else 0.9 * average + 0.1 * reward
        if episode % args.log_interval == 0:
            print('episode {}: {} steps, reward {:.2f}, average {:.2f}, loss {:.4f}'.format(
                episode, len(rewards), reward, average, loss.item()))


if __name__ == '__main__':
    main()
