"""REINFORCE on a corridor: start in the middle, the exit is on the right, every step costs a little."""
import argparse
from itertools import count

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

parser = argparse.ArgumentParser(description='Policy gradient on a corridor')
parser.add_argument('--gamma', type=float, default=0.95, metavar='G', help='discount factor')
parser.add_argument('--length', type=int, default=7, help='cells of the corridor')
parser.add_argument('--episodes', type=int, default=200)
parser.add_argument('--seed', type=int, default=543, metavar='N')
parser.add_argument('--log-interval', type=int, default=10, metavar='N')
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
        self.affine1 = nn.Linear(length, 16)
        self.affine2 = nn.Linear(16, 2)

        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.affine2(x), dim=-1)


env = Corridor(args.length)
policy = Policy(args.length).to(device)
optimizer = optim.Adam(policy.parameters(), lr=0.05)
eps = 1e-8


def select_action(state):
    state = state.unsqueeze(0).to(device)
    probs = policy(state)
    m = Categorical(probs)
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()


def finish_episode():
    R = 0
    returns = []
    for r in policy.rewards[::-1]:
        R = r + args.gamma * R
        returns.insert(0, R)
    returns = torch.tensor(returns, device=device)
    returns = (returns - returns.mean()) / (returns.std(unbiased=False) + eps)
    policy_loss = []
    for log_prob, R in zip(policy.saved_log_probs, returns):
        policy_loss.append(-log_prob * R)
    optimizer.zero_grad()
    policy_loss = torch.cat(policy_loss).sum()
    policy_loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]


def main():
    running_reward = 0
    for i_episode in range(1, args.episodes + 1):
        state, ep_reward = env.reset(), 0
        for t in count(1):
            action = select_action(state)
            state, reward, done = env.step(action)
            policy.rewards.append(reward)
            ep_reward += reward
            if done:
                break

        running_reward = 0.05 * ep_reward + (1 - 0.05) * running_reward
        finish_episode()
        if i_episode % args.log_interval == 0:
            print('Episode {}\tsteps: {}\tLast reward: {:.2f}\tAverage reward: {:.2f}'.format(
                  i_episode, t, ep_reward, running_reward))


if __name__ == '__main__':
    main()
