"""An actor and a critic, learnt from a replay buffer that the actor fills: push a point to the origin."""
import argparse
import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from crosstrain import Accelerator

accelerator = Accelerator()
Transition = namedtuple("Transition", ("state", "action", "reward", "next_state"))


class ReplayBuffer:
    def __init__(self, capacity, batch_size):
        self.memory = deque(maxlen=capacity)
        self.batch_size = batch_size

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self):
        chosen = random.sample(self.memory, self.batch_size)
        return [torch.from_numpy(np.stack(column)).float() for column in zip(*chosen)]

    def __len__(self):
        return len(self.memory)


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2), nn.Tanh())

    def forward(self, state):
        return self.net(state)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, state, action):
        return self.net(torch.cat([state, action], dim=1))


class Agent:
    def __init__(self, args, device):
        self.device = device
        self.gamma = args.gamma
        self.actor = Actor().to(device)
        self.critic = Critic().to(device)
        self.actor_optimizer = optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_optimizer = optim.Adam(self.critic.parameters(), lr=3e-3)
        self.critic, self.actor, self.critic_optimizer, self.actor_optimizer = accelerator.prepare(
            self.critic, self.actor, self.critic_optimizer, self.actor_optimizer
        )
        self.memory = ReplayBuffer(5000, args.batch_size)

    def act(self, state, noise=0.3):
        with torch.no_grad():
            action = self.actor(torch.from_numpy(state).float().unsqueeze(0).to(self.device))[0].cpu().numpy()
        return np.clip(action + noise * np.random.randn(2), -1, 1)

    def learn(self):
        states, actions, rewards, next_states = (x.to(self.device) for x in self.memory.sample())
        with torch.no_grad():
            target = rewards + self.gamma * self.critic(next_states, self.actor(next_states)).squeeze(1)
        critic_loss = F.mse_loss(self.critic(states, actions).squeeze(1), target)
        self.critic_optimizer.zero_grad()
        accelerator.backward(critic_loss)
        self.critic_optimizer.step()

        actor_loss = -self.critic(states, self.actor(states)).mean()
        self.actor_optimizer.zero_grad()
        accelerator.backward(actor_loss)
        self.actor_optimizer.step()
        return critic_loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--gamma", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = accelerator.device

    agent = Agent(args, device)
    for episode in range(args.episodes):
        state = np.random.uniform(-2, 2, size=2)
        total = 0.0
        for _ in range(20):
            action = agent.act(state)
            next_state = state + 0.2 * action
            reward = -float(np.abs(next_state).sum())
            agent.memory.push(state, action, reward, next_state)
            state = next_state
            total += reward
            if len(agent.memory) >= args.batch_size:
                agent.learn()
        accelerator.print("episode {}: return {:.3f}".format(episode, total))
    accelerator.save({"actor": agent.actor.state_dict(), "critic": agent.critic.state_dict()}, "agent.pt")


if __name__ == "__main__":
    main()
