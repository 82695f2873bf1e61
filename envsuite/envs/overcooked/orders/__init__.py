"""Orders in time: one cook serves several orders before their deadlines, in kitchens drawn from a seed."""
